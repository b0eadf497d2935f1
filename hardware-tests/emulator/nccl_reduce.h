/* What reductions yield: NCCL's value rules, the ranks' elements combined in the order of the ranks. */
#ifndef NCCL4J_EMULATOR_NCCL_REDUCE_H
#define NCCL4J_EMULATOR_NCCL_REDUCE_H

#include "nccl_abi.h"

#pragma GCC visibility push(hidden)

/* How each rank's elements are brought in before they are combined. */
typedef struct {
    ncclDataType_t type;
    int fold;     /* ncclSum, ncclProd, ncclMax, ncclMin */
    int scaled;   /* each rank's elements are multiplied by that rank's factor first */
    int divisor;  /* of an integer average; 1 if there is nothing to divide */
} nccl_reduction;

size_t nccl_type_size(ncclDataType_t type);

/* The reduction behind an operator. `scaled` operators other than ncclAvg bring their own factors. */
nccl_reduction nccl_reduction_of(ncclDataType_t type, int op, int premultiplied, int ranks);

/* The factor as nccl_reduce wants it: of an average over `ranks`, or of a scalar of the type. */
uint64_t nccl_average_factor(ncclDataType_t type, int ranks);
uint64_t nccl_scalar_factor(ncclDataType_t type, const void *scalar);

/* output[i] = inputs[0][i] op inputs[1][i] op ..., for count elements; output is none of the inputs. */
void nccl_reduce(const nccl_reduction *reduction, void *output, const void *const *inputs, const uint64_t *factors,
                 int ranks, size_t count);

#pragma GCC visibility pop

#endif
