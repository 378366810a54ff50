/* check_lanes.c: opens a context for each way to run a problem. */
#include "check_lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "options_context.h"

static const int32_t thread_counts[] = {2, 3};

static attn_status add_lane(struct check_lanes *lanes, const struct check_lane *lane, attn_error *error)
{
    struct check_lane *items = realloc(lanes->items, (lanes->count + 1) * sizeof *items);
    if (!items) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a list of implementations");
    items[lanes->count++] = *lane;
    lanes->items = items;
    return ATTN_OK;
}

/* The sentence alone; the error of a refusal also tells what else there is. */
static void keep_reason(void *user, const attn_trace *trace)
{
    struct check_reason *reason = user;
    if (trace->event != ATTN_TRACE_REASON || !trace->text || !trace->backend) return;
    if (strcmp(trace->backend, reason->backend) == 0)
        snprintf(reason->text, sizeof reason->text, "%s", trace->text);
}

/* Stays without a context when the machine lacks the kernel set. */
static void open_lane(const struct check_choice *choice, struct check_lane *lane)
{
    lane->reason = calloc(1, sizeof *lane->reason);
    char overrides[160];
    attn_context_info info = {.size = sizeof info};
    snprintf(overrides, sizeof overrides, "%s=%s", lane->backend, lane->implementation);
    attn_options options = {.size = sizeof options,
                            .threads = lane->threads,
                            .backend = lane->backend,
                            .platform = lane->device.device_type == kDLCPU ? "cpu" : NULL,
                            .isa = lane->device.device_type == kDLCPU ? lane->isa : NULL,
                            .module_path = choice->module_path,
                            .overrides = overrides,
                            .trace = keep_reason,
                            .trace_user = lane->reason};
    lane->error = (attn_error)ATTN_ERROR_INIT;
    if (!lane->reason) {
        cli_fail(&lane->error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a context");
        return;
    }
    snprintf(lane->reason->backend, sizeof lane->reason->backend, "%s", lane->backend);
    if (attn_open(&options, &lane->context, &lane->error) != ATTN_OK) return;
    attn_context_get_info(lane->context, &info);
    if (lane->device.device_type != kDLCPU || strcmp(info.isa, lane->isa) == 0) return;
    cli_fail(&lane->error, ATTN_KIND_CAPABILITY_UNSUPPORTED, "not on this CPU; %s would run in its place",
             info.isa);
    attn_close(lane->context);
    lane->context = NULL;
}

/* A kernel set that this CPU or this build lacks is news; whatever else keeps a lane from opening is a
 * failure. */
static attn_status lane_failure(const struct check_lane *lane, attn_error *error)
{
    attn_kind kind = lane->error.kind;
    if (lane->context || kind == ATTN_KIND_CAPABILITY_UNSUPPORTED || kind == ATTN_KIND_UNKNOWN_NAME)
        return ATTN_OK;
    return cli_fail(error, kind, "%s", lane->error.text);
}

/* Lanes of one implementation under one of its backends. */
static attn_status add_lanes(const struct check_choice *choice, const char *implementation,
                             const char *backend, struct check_lanes *lanes, attn_error *error)
{
    size_t first = lanes->count, best = first;
    attn_status status = ATTN_OK;
    for (size_t i = 0; attn_kernel_set_at(i, NULL) && !status; i++) {
        struct check_lane lane = {
            .device = {kDLCPU, 0}, .threads = 1, .rule = i ? CHECK_SCALAR : CHECK_EXACT, .base = first};
        if (choice->isa && strcmp(choice->isa, attn_kernel_set_at(i, NULL)) != 0 && i > 0) continue;
        snprintf(lane.implementation, sizeof lane.implementation, "%s", implementation);
        snprintf(lane.backend, sizeof lane.backend, "%s", backend);
        snprintf(lane.isa, sizeof lane.isa, "%s", attn_kernel_set_at(i, NULL));
        open_lane(choice, &lane);
        if (lane.context) best = lanes->count;
        status = add_lane(lanes, &lane, error);
        if (!status) status = lane_failure(&lane, error);
    }
    for (size_t i = 0; i < sizeof thread_counts / sizeof *thread_counts && !status; i++) {
        struct check_lane lane = lanes->items[best];
        lane.context = NULL;
        lane.threads = thread_counts[i];
        lane.rule = CHECK_SAME;
        lane.base = best;
        open_lane(choice, &lane);
        status = add_lane(lanes, &lane, error);
        if (!status) status = lane_failure(&lane, error);
    }
    return status;
}

/* The wanted backend if the implementation serves it, else its first one; 0 when it does not serve the wanted
 * one. */
static int choose_backend(const char *served, const char *wanted, char *backend, size_t bytes)
{
    for (const char *at = served; *at;) {
        size_t length = strcspn(at, ", ");
        if (!wanted || (strlen(wanted) == length && strncmp(at, wanted, length) == 0)) {
            snprintf(backend, bytes, "%.*s", (int)length, at);
            return 1;
        }
        at += length + strspn(at + length, ", ");
    }
    return 0;
}

/* Implementations of the platform that owns the device, one lane each. */
static attn_status add_device_lanes(const struct check_choice *choice, DLDevice device,
                                    struct check_lanes *lanes, attn_error *error)
{
    attn_impl_info info = {.size = sizeof info};
    attn_context_info own = {.size = sizeof own};
    attn_options options = {.size = sizeof options, .module_path = choice->module_path};
    attn_context *context;
    attn_status status = attn_open(&options, &context, error);
    if (status) return status;
    attn_device_limits limits = {.size = sizeof limits};
    attn_context_get_info(context, &own);
    status = attn_device_get_limits(context, device, &limits, error); /* says what is missing */
    for (size_t i = 0; !status && attn_impl_at(context, i, &info); i++) {
        struct check_lane lane = {.device = device, .flags = info.flags, .threads = 1, .rule = CHECK_EXACT};
        if (strcmp(info.platform, own.platform) != 0 ||
            !choose_backend(info.backends, choice->backend, lane.backend, sizeof lane.backend))
            continue;
        snprintf(lane.implementation, sizeof lane.implementation, "%s", info.name);
        snprintf(lane.isa, sizeof lane.isa, "%s", choice->device);
        lane.base = lanes->count;
        open_lane(choice, &lane);
        status = add_lane(lanes, &lane, error);
        if (!status) status = lane_failure(&lane, error);
    }
    if (!status && lanes->count == 0)
        status = cli_fail(
            error, ATTN_KIND_PACKAGE_MISSING,
            "platform %s has no implementation of %s for --device %s; attn info tells what was found",
            own.platform, choice->backend ? choice->backend : "any backend", choice->device);
    attn_close(context);
    return status;
}

static attn_status add_host_lanes(const struct check_choice *choice, struct check_lanes *lanes,
                                  attn_error *error)
{
    attn_impl_info info = {.size = sizeof info};
    attn_status status = ATTN_OK;
    int known = !choice->isa;
    for (size_t i = 0; attn_kernel_set_at(i, NULL) && !known; i++)
        known = strcmp(choice->isa, attn_kernel_set_at(i, NULL)) == 0;
    if (!status && !known)
        status = cli_fail(error, ATTN_KIND_UNKNOWN_NAME,
                          "--isa is \"%s\", which is no kernel set of this build; attn info lists them",
                          choice->isa);
    for (size_t i = 0; !status && attn_impl_at(lanes->reference, i, &info); i++) {
        char backend[64];
        if (strcmp(info.platform, "cpu") != 0 ||
            !choose_backend(info.backends, choice->backend, backend, sizeof backend))
            continue;
        status = add_lanes(choice, info.name, backend, lanes, error);
    }
    if (!status && lanes->count == 0)
        status = cli_fail(error, ATTN_KIND_UNKNOWN_BACKEND,
                          "no implementation on the CPU serves %s; see attn list",
                          choice->backend ? choice->backend : "any backend");
    return status;
}

attn_status check_lanes_open(const struct check_choice *choice, struct check_lanes *lanes, attn_error *error)
{
    DLDevice device;
    attn_options options = {.size = sizeof options,
                            .backend = CHECK_REFERENCE,
                            .platform = "cpu",
                            .module_path = choice->module_path};
    memset(lanes, 0, sizeof *lanes);
    attn_status status = context_device(choice->device, &device, error);
    if (!status && device.device_type != kDLCPU && choice->isa)
        status = cli_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                          "--isa names kernel sets of the CPU and --device another device; give one of them");
    if (!status) status = attn_open(&options, &lanes->reference, error);
    if (status) return status;
    return device.device_type == kDLCPU ? add_host_lanes(choice, lanes, error)
                                        : add_device_lanes(choice, device, lanes, error);
}

void check_lanes_close(struct check_lanes *lanes)
{
    for (size_t i = 0; i < lanes->count; i++) {
        outcome_free(&lanes->items[i].outcome);
        attn_close(lanes->items[i].context);
        free(lanes->items[i].reason);
    }
    attn_close(lanes->reference);
    free(lanes->items);
}
