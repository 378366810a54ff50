/* contract.h: what the contract says of a backend on a machine that is only described. */
#ifndef ATTN_REGISTRY_CONTRACT_H
#define ATTN_REGISTRY_CONTRACT_H

#include "core/facts.h"
#include "registry/registry.h"

/* Head sizes of 0 or less are not known, and no check on them fails. */
enum { ATTN_HEAD_SIZE_UNKNOWN = -1 };

/* Collects every reason the rows have against a backend, in the contract's order. */
void attn_contract_check(const attn_backend *backend, const attn_facts *facts, int64_t head_size,
                         attn_reasons *reasons);
/* The platform is declared for the backend. */
bool attn_contract_platform(const attn_backend *backend, const char *platform);

/* The backend takes fp32 on that platform: the plain one and those of modules anywhere, this project's own on
 * a CPU. */
bool attn_contract_f32(const attn_backend *backend, const attn_facts *facts);

/* Conditions of routes.def. */
typedef enum attn_condition { ALWAYS, PERMITTED, BLACKWELL, CUDNN_READY, HEAD_KNOWN } attn_condition;
/* NULL: it holds; else what stands against it. */
const char *attn_contract_condition(attn_condition condition, const attn_facts *facts, int64_t head_size,
                                    bool permitted);

/* What people should know of a machine beside the choice, or NULL: a Blackwell GPU with too old a cuDNN (a
 * warning), or of a variant that nobody has tested. */
const char *attn_contract_remark(const attn_facts *facts, bool *warning);

#endif
