/* main.c: one attention call through the installed library. */
#include <attn/attn.h>
#include <stdio.h>
#include <string.h>

/* One key: attention is its value. */
static int call_once(attn_context *context)
{
    float q[4] = {1, 2, 3, 4}, k[4] = {4, 3, 2, 1}, v[4] = {5, 6, 7, 8}, out[4] = {0};
    int64_t shape[4] = {1, 1, 1, 4};
    DLTensor t = {q, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0};
    DLTensor tk = t, tv = t, to = t;
    tk.data = k, tv.data = v, to.data = out;
    attn_layer *layer = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_layer_options site = {.size = sizeof site, .role = "self", .heads = 1, .head_dim = 4};
    attn_args args = {.size = sizeof args, .q = &t, .k = &tk, .v = &tv, .out = &to};
    attn_status status = attn_layer_open(context, &site, &layer, &error);
    if (status == ATTN_OK) status = attn_forward(layer, &args, &error);
    if (status != ATTN_OK) fprintf(stderr, "%s\n", error.text);
    attn_layer_close(layer);
    return status == ATTN_OK && memcmp(out, v, sizeof v) == 0;
}

int main(void)
{
    char header[32];
    attn_context *context;
    attn_error error = ATTN_ERROR_INIT;
    snprintf(header, sizeof header, "%d.%d.%d", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    if (strcmp(header, attn_version())) {
        fprintf(stderr, "the header is %s, the library %s\n", header, attn_version());
        return 1;
    }
    if (attn_open(NULL, &context, &error) != ATTN_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    int right = call_once(context);
    attn_close(context);
    printf("attn %s: %s\n", attn_version(), right ? "right" : "wrong");
    return !right;
}
