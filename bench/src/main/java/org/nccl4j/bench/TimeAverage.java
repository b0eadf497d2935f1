package org.nccl4j.bench;

/**
 * How -a turns the times of all threads of all processes into one. One time per thread: the devices
 * of a thread are timed together.
 */
enum TimeAverage {
    RANK0 {
        @Override
        double reduce(double[] seconds) {
            return seconds[0];
        }
    },
    MEAN {
        @Override
        double reduce(double[] seconds) {
            double sum = 0;
            for (double each : seconds) {
                sum += each;
            }
            return sum / seconds.length;
        }
    },
    MIN {
        @Override
        double reduce(double[] seconds) {
            double min = seconds[0];
            for (double each : seconds) {
                min = Math.min(min, each);
            }
            return min;
        }
    },
    MAX {
        @Override
        double reduce(double[] seconds) {
            double max = seconds[0];
            for (double each : seconds) {
                max = Math.max(max, each);
            }
            return max;
        }
    };

    /**
     * The time to report.
     *
     * @param seconds one per thread, threads in order, processes in order; at least one
     */
    abstract double reduce(double[] seconds);
}
