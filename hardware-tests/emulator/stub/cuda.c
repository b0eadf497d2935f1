/*
 * The CUDA driver's library as far as other bindings want it to be there. It has none of the functions
 * that contexts are looked at with, so that nothing is asked of it.
 */
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
