/* judge.c: runs implementations and judges what they write. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

attn_context *device_context, *host_context;
cudaStream_t stream;
double most_l2[16];
int refused;

static attn_status forward(attn_context *c, const attn_layer_options *options, DLDevice device,
                           const char *impl, attn_args *args, attn_error *error)
{
    attn_layer *layer;
    attn_layer_options o = *options;
    char overrides[128];
    snprintf(overrides, sizeof overrides, "TORCH_SDPA=%s,FLASH_ATTN=%s", impl, impl);
    o.device = device;
    o.impl_overrides = overrides;
    attn_status status = attn_layer_open(c, &o, &layer, error);
    if (status) return status;
    status = attn_forward(layer, args, error);
    attn_layer_close(layer);
    return status;
}

static attn_status forward_captured(attn_layer *layer, attn_args *args, attn_error *error)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    attn_status status = attn_forward(layer, args, error);
    cuda(cudaStreamEndCapture(stream, &graph), "end of capture");
    if (status) return status;
    cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cuda(cudaGraphLaunch(exec, stream), "graph launch");
    cuda(cudaStreamSynchronize(stream), "graph");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return ATTN_OK;
}

/* Bounds of the relative L2 error, and of one element where values are about one. */
static void bounds(const problem *p, int flash, double *l2, double *worst)
{
    attn_dtype out = p->out.dtype;
    double unit = p->dtype == ATTN_F64 ? 1e-13 : p->peak > 1 ? 1e-4 : 1e-5;
    double rounding = out == ATTN_BF16 ? 2.2e-3 : out == ATTN_F16 ? 3e-4 : 0;
    double weights = flash ? (p->dtype == ATTN_BF16 ? 2.6e-3 : 3.5e-4) : 0;
    *l2 = unit + rounding + weights;
    *worst = 8 * unit + (out == ATTN_BF16 ? 2.0e-2 : out == ATTN_F16 ? 2.5e-3 : 0) + 8 * weights;
    /* A few elements that cancel have no norm to compare with. */
    if (p->out.count < 2000) *l2 *= 2;
}

void check_one(const char *impl, int flash, int partial, int number)
{
    problem p;
    attn_error error = ATTN_ERROR_INIT;
    double worst, l2, most_worst, bound_l2, lse_worst = 0, lse_l2;
    make_problem(&p, flash);
    poison(&p.out), poison(&p.lse);
    p.args[DEVICE].stream = stream;
    attn_status status =
        forward(host_context, &p.layer, (DLDevice){kDLCPU, 0}, "cpu_reference", &p.args[WIDE], &error);
    if (status) printf("truth refused: %s: %s\n", p.text, error.text);
    need(!status, "the truth must run");
    break_truth(&p);
    attn_layer_options o = p.layer;
    char overrides[128];
    attn_layer *layer = NULL;
    snprintf(overrides, sizeof overrides, "TORCH_SDPA=%s,FLASH_ATTN=%s", impl, impl);
    o.device = (DLDevice){kDLCUDA, 0}, o.impl_overrides = overrides;
    status = attn_layer_open(device_context, &o, &layer, &error);
    if (!status) status = attn_forward(layer, &p.args[DEVICE], &error);
    if (!status) cuda(cudaStreamSynchronize(stream), p.text);
    if (!status && number % 4 == 0) {
        poison(&p.out), poison(&p.lse);
        status = forward_captured(layer, &p.args[DEVICE], &error);
        note(&p, " captured");
    }
    if (status) {
        int may =
            partial && status != ATTN_INTERNAL && status != ATTN_OUT_OF_MEMORY && strstr(error.text, impl);
        if (!may) printf("FAIL %s %s: %s\n", impl, p.text, error.text);
        refused += may;
        failures += !may;
        attn_layer_close(layer);
        drop_problem(&p);
        return;
    }
    attn_layer_close(layer);
    int64_t wrong = compare(&p.out, p.out.dl[WIDE].data, 1, &worst, &l2), lse_wrong = 0;
    if (p.args[DEVICE].lse) lse_wrong = compare(&p.lse, p.lse.dl[WIDE].data, 0, &lse_worst, &lse_l2);
    bounds(&p, flash, &bound_l2, &most_worst);
    double lse_bound = p.dtype == ATTN_F64 ? 2e-6 : 1e-5 * (p.peak > 1 ? 20 : 1) * (flash ? 4 : 1);
    if (wrong || lse_wrong || !(l2 <= bound_l2) || !(worst <= most_worst) || !(lse_worst <= lse_bound)) {
        failures++;
        if (failures < 40)
            printf("FAIL %s #%d %s: l2 %.2e (%.2e), worst %.2e (%.2e), lse %.2e (%.2e), wrong %lld, lse "
                   "wrong %lld\n",
                   impl, number, p.text, l2, bound_l2, worst, most_worst, lse_worst, lse_bound,
                   (long long)wrong, (long long)lse_wrong);
    }
    if (l2 > most_l2[p.out.dtype] && p.out.count >= 2000) most_l2[p.out.dtype] = l2;
    drop_problem(&p);
}
void check_large(const char *impl)
{
    static const int64_t sizes[] = {64, 72, 80, 96, 128, 192, 256};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        int64_t axes[] = {1, 4095, 3, sizes[n]};
        tensor q, k, v, out, truth;
        attn_error error = ATTN_ERROR_INIT;
        double worst, l2;
        attn_dtype dtype = n % 2 ? ATTN_F16 : ATTN_BF16;
        make(&q, dtype, 4, axes, 1, 0), make(&k, dtype, 4, axes, 1, 0), make(&v, dtype, 4, axes, 1, 0);
        make(&out, dtype, 4, axes, 1, 0), make(&truth, ATTN_F32, 4, axes, 1, 0);
        fill(&q, 1), fill(&k, 1), fill(&v, 1);
        upload(&q), upload(&k), upload(&v);
        poison(&out), poison(&truth);
        attn_layer_options o = {.size = sizeof o, .heads = 3, .head_dim = sizes[n]};
        attn_args args = {.size = sizeof args,
                          .q = &q.dl[DEVICE],
                          .k = &k.dl[DEVICE],
                          .v = &v.dl[DEVICE],
                          .out = &out.dl[DEVICE],
                          .stream = stream};
        attn_status status = forward(device_context, &o, (DLDevice){kDLCUDA, 0}, impl, &args, &error);
        args.out = &truth.dl[DEVICE];
        if (!status)
            status = forward(device_context, &o, (DLDevice){kDLCUDA, 0}, "cuda_reference", &args, &error);
        cuda(cudaStreamSynchronize(stream), "large problem");
        cuda(cudaMemcpy(truth.dl[HOST].data, truth.dl[DEVICE].data, truth.bytes, cudaMemcpyDeviceToHost),
             "download");
        int64_t wrong = status ? 1 : compare(&out, truth.dl[HOST].data, 0, &worst, &l2);
        int bad = status || wrong || !(l2 <= (dtype == ATTN_BF16 ? 3e-3 : 4e-4));
        failures += bad;
        printf("%s %s s4095 d%d %s: %s, relative l2 %.2e\n", bad ? "FAIL" : "ok  ", impl, (int)sizes[n],
               attn_dtype_name(dtype), status ? error.text : "against cuda_reference", status ? 0.0 : l2);
        drop(&q), drop(&k), drop(&v), drop(&out), drop(&truth);
    }
}
