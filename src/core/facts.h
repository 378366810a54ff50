/* facts.h: what a platform is like on a machine, probed or read from a file. */
#ifndef ATTN_CORE_FACTS_H
#define ATTN_CORE_FACTS_H

#include "core/fail.h"
#include "core/llm.h"

enum {
#define X(key, name, from) ATTN_PACKAGE_##key,
#include "core/packages.def"
#undef X
    ATTN_PACKAGES
};

/* What AMD's library is switched on for. */
enum {
#define X(word, sentence) ATTN_AITER_BIT_##word,
#include "core/aiter.def"
#undef X
    ATTN_AITER_WORDS
};
#define ATTN_AITER(word) (1u << ATTN_AITER_BIT_##word)

struct attn_facts {
    char platform[32]; /* "cpu", "cuda", ..., "none" */
    bool live;         /* of this machine, from probes */
    bool has_capability;
    int32_t major, minor;
    char device_name[128];
    int32_t cudnn_version; /* 90500 = 9.5.0; 0: none */
    bool has_xpu_architecture;
    int64_t xpu_architecture;
    int32_t cuda_version; /* 12080 = 12.8; 0: not known */
    uint32_t aiter;       /* bits ATTN_AITER */
    uint64_t missing;     /* names of domain llm that are not built in, bits 1 << ATTN_LLM_NAME_* */
    uint64_t packages;    /* bits 1 << ATTN_PACKAGE_* */
    char unknown[160];    /* packages that were listed and are not known here, for a remark */
};

const char *attn_package_key(int package);
const char *attn_package_name(int package);
const char *attn_package_from(int package);
int attn_package_find(const char *key);                         /* -1: unknown */
bool attn_facts_have(const attn_facts *facts, const char *key); /* false for an unknown key as well */
/* "sm_90", or the platform's name where there is no capability. Returns text. */
const char *attn_facts_arch(const attn_facts *facts, char *text, size_t bytes);

#endif
