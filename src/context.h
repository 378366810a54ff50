/* context.h: what a context and a layer hold. */
#ifndef ATTN_CONTEXT_H
#define ATTN_CONTEXT_H

#include "core/memory.h"
#include "core/problem.h"
#include "core/threads.h"
#include "device.h"
#include "forward.h"
#include "platform/platform.h"
#include "policy/policy.h"
#include "profile.h"

#include <stdatomic.h>

/* A plan of one implementation for one problem. Owned by the cache and by those who run it. */
typedef struct attn_plan {
    struct attn_plan *next; /* in order of use, latest first */
    const attn_impl_slot *slot;
    void *state;
    attn_workspace workspace;
    attn_problem problem;
    atomic_int owners;
} attn_plan;

typedef struct attn_plans {
    attn_lock lock;
    attn_plan *first;
    uint32_t count, most;
} attn_plans;

/* Selections that were logged, so that forty layers of one role make one line. */
typedef struct attn_logged {
    struct attn_logged *next;
    char key[];
} attn_logged;

/* Answers of attn_resolve, by a hash of the question. */
typedef struct attn_answer {
    attn_query query; /* its strings are role, category and model_backend */
    attn_llm_case llm;
    uint64_t generation;
    attn_resolution resolution;
    char *role, *category, *model_backend; /* in the same allocation; "" for those that were not given */
    bool has_category;
} attn_answer;

enum { ATTN_ANSWERS = 128 };

typedef struct attn_answers {
    attn_lock lock;
    attn_answer *rows[ATTN_ANSWERS];
} attn_answers;

struct attn_context {
    attn_allocator allocator;
    attn_host host;
    attn_registry registry;
    attn_config *config;
    attn_facts facts;     /* of the platform, or those that were given */
    attn_facts cpu_facts; /* for layers on host memory, wherever they run */
    attn_probed *probes;
    size_t probe_count;
    attn_workspaces workspaces;
    attn_lock spaces_lock;
    attn_space *spaces; /* of streams of devices */
    attn_plans plans;
    attn_answers answers;
    const attn_platform *platform;
    attn_log_fn log;
    void *log_user;
    attn_trace_fn trace;
    void *trace_user;
    attn_parallel_for_fn parallel_for;
    void *parallel_user;
    attn_pool_options pool;
    char *isa_cap; /* "" without a cap */
    char isa_text[256];
    char thread_text[256];
    char cpu_name[128];
    attn_profile *profile; /* NULL: none */
    char *profile_path;    /* "" without one */
    attn_lock log_lock;
    attn_logged *logged;
    bool remarked; /* what is odd about the machine was said */
    bool geometry_warned;
    bool dense_warned;              /* that sparse backends never turned sparse */
    _Atomic int64_t sparse_calls;   /* of all layers, that left blocks out */
    _Atomic int64_t forward_states; /* that calls built */
    bool one_llm;                   /* layers of domain llm share one backend */
    const attn_backend *first_llm;  /* of the first of them, under log_lock; NULL: none yet */
    bool obsolete;                  /* a variable of older releases is set, and that was not said yet */
    bool pool_held;
};

struct attn_layer {
    attn_context *context;
    attn_site site;
    attn_question question; /* its category and model_backend are the layer's own copies */
    char *role, *category, *impl_overrides, *model_backend, *qkv_layout;
    bool permitted;     /* the model permits TRTLLM as a default */
    attn_choice choice; /* made when the layer opened */
    attn_choice
        current;     /* what the last forward ran; differs only after an automatic choice was judged anew */
    attn_plan *plan; /* of the last forward */
    char plan_text[160];
    uint64_t demoted; /* implementations that failed at run time, by index in the registry */
    int32_t demotions;
    bool rejudged;       /* the change was logged */
    uint64_t generation; /* of the overrides that choice knows */
    attn_consumer consumer;
    attn_report report; /* of the last forward */
    int64_t dense_calls, sparse_calls;
};

/* context.c */
void attn_context_log(const attn_context *context, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* attn.c: says a selection once a (role, category, backend, source). */
void attn_log_selection(attn_context *context, const char *role, const char *category,
                        const attn_choice *choice);

/* attn.c: refuses a second backend of domain llm where the context wants one. */
attn_status attn_check_mix(attn_context *context, const char *role, int64_t head_size,
                           const attn_backend *backend, attn_error *error);

/* forward.c: sets params and forward of a call whose implementation consumes them. Fails like
 * attn_consumer_build. */
attn_status attn_layer_consume(attn_layer *layer, attn_request *request, attn_error *error);
/* After a forward: counts what its report says of blocks, and warns once when a run of denoise steps ends in
 * which nothing ever turned sparse. */
void attn_layer_count_blocks(attn_layer *layer, const attn_call *call);

/* forward_plugin.c: what a plugin's parameters have beside those of others: what its own geometry makes of
 * them, and the inputs that it declared. */
attn_status attn_plugin_extend(attn_layer *layer, attn_request *request, attn_error *error);

/* forward_blocks.c: attn_host.run_blocks. */
attn_status attn_forward_blocks(const attn_host *host, const attn_call *call, const attn_block_map *map,
                                attn_error *error);

/* resolve.c */
/* Reads what domain and llm say; heads are those of a layer, 0 where there is none. Strings stay the
 * caller's. */
attn_status attn_question_read(attn_domain domain, const attn_llm_query *llm, int64_t head_size,
                               attn_dtype dtype, int64_t heads, int64_t kv_heads, attn_question *question,
                               attn_error *error);
void attn_answers_clear(attn_context *context);

/* plan.c */
/* Tells a failure of an implementation, with the module's name; a status without a kind gets the status's
 * first kind. */
attn_status attn_impl_failed(const attn_context *context, const attn_impl_slot *slot, attn_status status,
                             const attn_error *why, attn_error *error);
void attn_plans_init(attn_plans *plans, uint32_t most);
void attn_plans_clear(attn_context *context);
/* Finds or makes the plan; the caller owns a reference. */
attn_status attn_plan_get(attn_context *context, const attn_impl_slot *slot, const attn_problem *problem,
                          attn_plan **plan, attn_error *error);
void attn_plan_release(attn_context *context, attn_plan *plan); /* NULL is allowed */
/* Bytes of scratch between two workers, and of the whole workspace with the joint area; false on overflow. */
bool attn_plan_bytes(const attn_plan *plan, int32_t workers, size_t joint_bytes, size_t *stride,
                     size_t *total);

#endif
