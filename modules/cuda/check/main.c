/* main.c: the program gpu-check. It runs the implementations of the CUDA module through the public interface
 * on random problems, compares every element with cpu_reference in double from the same values, and times
 * them. usage: gpu-check MODULE.so IMPLEMENTATION[:partial]... [--no-timing]; partial: it may
 * refuse problems, with a reason. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static attn_context *open_context(const char *platform, const char *module)
{
    attn_context *c;
    attn_error error = ATTN_ERROR_INIT;
    attn_module_info info = {.size = sizeof info};
    attn_options o = {
        .size = sizeof o, .platform = platform, .module_path = module, .flags = ATTN_OPEN_IGNORE_ENV};
    if (attn_open(&o, &c, &error)) {
        fprintf(stderr, "gpu-check: %s\n", error.text);
        exit(3);
    }
    if (*module && (!attn_module_at(c, 0, &info) || info.kind)) {
        fprintf(stderr, "gpu-check: %s\n", info.text);
        exit(3);
    }
    return c;
}
int main(int argc, char **argv)
{
    struct cudaDeviceProp properties;
    int driver = 0, count = getenv("GPU_CHECK_COUNT") ? atoi(getenv("GPU_CHECK_COUNT")) : 600;
    int timing = strcmp(argv[argc - 1], "--no-timing") != 0;
    char date[32];
    time_t now = time(NULL);
    argc -= !timing;
    if (argc < 3) {
        fprintf(stderr, "usage: gpu-check MODULE.so IMPLEMENTATION[:partial]... [--no-timing]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    cudaDriverGetVersion(&driver);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    printf("# CUDA kernels on %s\n\n%s, driver for CUDA %d.%d, %d multiprocessors\n\n", properties.name, date,
           driver / 1000, driver % 1000 / 10, properties.multiProcessorCount);
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    device_context = open_context(NULL, argv[1]);
    host_context = open_context("cpu", "");
    printf("```\n");
    for (int i = 2; i < argc; i++) {
        char *option = strchr(argv[i], ':');
        int flash = strcmp(argv[i], "cuda_reference") != 0, before = failures, partial = option != NULL;
        if (option) *option = 0;
        refused = 0;
        random_state = 7;
        memset(most_l2, 0, sizeof most_l2);
        for (int n = 0; n < count; n++) check_one(argv[i], flash, partial, n);
        /* A check that refuses most of its problems proves nothing. */
        failures += refused > count / 2;
        printf("%s: %d random problems against cpu_reference in double, %d refused, %d failed; largest "
               "relative l2 f32 "
               "%.1e f16 %.1e "
               "bf16 %.1e f64 %.1e\n",
               argv[i], count, refused, failures - before, most_l2[ATTN_F32], most_l2[ATTN_F16],
               most_l2[ATTN_BF16], most_l2[ATTN_F64]);
        if (flash && timing) check_large(argv[i]);
    }
    printf("```\n\n");
    if (timing) time_all(argv + 2, argc - 2);
    attn_close(device_context), attn_close(host_context);
    printf("\n%s\n", failures ? "FAILED" : "all checks passed");
    return failures ? 1 : 0;
}
