/* common.c: the value-case runner and the generators that field cases share. */
#include "field.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int field_no_truth(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)c, (void)b, (void)h, (void)i, (void)j;
    return 1;
}

int keep_by_mask(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t *s = c->mask.shape;
    return tensor_get(&c->mask.dl, (int64_t[]){s[0] == 1 ? 0 : b, s[1] == 1 ? 0 : h, s[2] == 1 ? 0 : i,
                                               s[3] == 1 ? 0 : j}) != 0;
}

int keep_by_key_mask(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)h, (void)i;
    return tensor_get(c->args.key_mask, (int64_t[]){c->args.key_mask->shape[0] == 1 ? 0 : b, j}) != 0;
}

int keep_bottom_right(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)b, (void)h;
    return j <= i + c->k.shape[1] - c->q.shape[1];
}

static double key_index(int64_t n, const void *arg)
{
    const tensor *v = ((const tensor *const *)arg)[0];
    const double *first = ((const double *const *)arg)[1];
    return (double)(n / (v->shape[2] * v->shape[3]) % v->shape[1]) + *first;
}

void fill_key_index(const tensor *v, double first)
{
    const void *arg[2] = {v, &first};
    tensor_generate(v, key_index, arg);
}

static void run_probes(const probe_case *p, const char *backend, keep_fn keep,
                       void (*after)(const test_call *c))
{
    test_call c;
    tensor out, lse;
    char label[64];
    snprintf(label, sizeof label, "%s on %s", p->id, backend);
    call_make(&c, backend, p->dtype, p->d);
    call_mix32(&c, p->seed, p->seed + 1, p->seed + 2);
    if (p->arrange) p->arrange(&c);
    call_run(&c);
    for (int i = 0; i < p->probes; i++)
        value_near(label, tensor_get(&c.out.dl, p->probe[i].at), p->probe[i].value, p->atol);
    if (keep != field_no_truth) {
        call_truth(&c, keep, &out, &lse);
        tensor_near(label, &c.out.dl, &out.dl, p->atol);
        tensor_near(label, &c.lse.dl, &lse.dl, p->atol);
        tensor_free(&out);
        tensor_free(&lse);
    }
    if (after) after(&c);
    call_free(&c);
}

void field_probes(const probe_case *p, keep_fn keep, void (*after)(const test_call *c))
{
    FOR_BACKENDS(backend) run_probes(p, *backend, keep, after);
}
