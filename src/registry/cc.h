/* cc.h: ranges of compute capabilities as the tables write them. */
#ifndef ATTN_REGISTRY_CC_H
#define ATTN_REGISTRY_CC_H

#include "core/facts.h"

/* "any", "n/a" (never), ">=8.0", "10.0", "9.x", "9.x-10.x"; a machine without a capability is only in "any".
 */
bool attn_cc_within(const char *range, const attn_facts *facts);

#endif
