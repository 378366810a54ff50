/* report.h: what ran, how fast and how exact, as text or JSON. */
#ifndef VIDEO_DIT_REPORT_H
#define VIDEO_DIT_REPORT_H

#include "exact.h"
#include "fidelity.h"
#include "options.h"
#include "verify.h"

typedef struct report {
    const options *options;
    const attention *attention;
    const verdict *verdict;   /* NULL: no reference case was drawn */
    const exact *exact;       /* NULL: no clip was drawn */
    const network *network;   /* NULL likewise */
    const fidelity *fidelity; /* NULL: nothing to compare with was given */
    int steps;
    int threads;
    double seconds; /* of all network calls */
} report;

/* Prints to stdout in the form the options ask for. */
void report_print(const report *r);

/* A JSON object with error_kind and error. */
void report_failure_json(const failure *f);

/* Whether the reference case came out as it should. */
int report_verdict_good(const options *o, const verdict *v);

#endif
