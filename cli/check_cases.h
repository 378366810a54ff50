/* check_cases.h: the problems that attn check runs. */
#ifndef ATTN_CLI_CHECK_CASES_H
#define ATTN_CLI_CHECK_CASES_H

#include "problem.h"

/* The rows of checks.def, with device those of checks_device.def too, and `random` problems that combine
 * features at random, from a seed. quick: every third. */
attn_status check_cases(uint64_t seed, int64_t random, int quick, int device, struct problem_list *list,
                        attn_error *error);

#endif
