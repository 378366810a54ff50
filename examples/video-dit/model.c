/* model.c: binds the tensors of the weights file to the fields of the model. */
#include "model.h"
#include "weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OF_MODEL = -1 };

typedef struct slot {
    size_t field; /* offset of the pointer in its struct */
    const char *name;
    int64_t rows, columns;
} slot;

static const slot model_slots[] = {
#define M(field, name, rows, columns) {offsetof(model, field), name, rows, columns},
#include "tensors.def"
};

static const slot block_slots[] = {
#define B(field, name, rows, columns) {offsetof(block_weights, field), name, rows, columns},
#include "tensors.def"
};

enum {
    MODEL_SLOTS = sizeof model_slots / sizeof *model_slots,
    BLOCK_SLOTS = sizeof block_slots / sizeof *block_slots
};

/* What the shapes of the tensors cannot tell. */
static const struct number {
    const char *key;
    double value;
} numbers[] = {{"heads", HEADS},   {"head_dim", HEAD_DIM}, {"fourier", WAVES},   {"objects", OBJECTS},
               {"rope_base", 100}, {"eps", 1e-6},          {"shift_at_4096", 3}, {"classes", CLASSES}};

static int64_t slot_values(const slot *s)
{
    return s->rows * (s->columns ? s->columns : 1);
}

static int64_t count_values(void)
{
    int64_t values = 0, of_block = 0;
    for (int i = 0; i < MODEL_SLOTS; i++) values += slot_values(&model_slots[i]);
    for (int i = 0; i < BLOCK_SLOTS; i++) of_block += slot_values(&block_slots[i]);
    return values + DEPTH * of_block;
}

static int bind(model *m, const weights *w, int index, const slot *s, float **at, failure *f)
{
    char name[96];
    void *owner = index == OF_MODEL ? (void *)m : (void *)&m->blocks[index];
    if (index == OF_MODEL)
        snprintf(name, sizeof name, "%s", s->name);
    else
        snprintf(name, sizeof name, "blocks.%d.%s", index, s->name);
    if (weights_read(w, name, s->rows, s->columns, *at, f)) return -1;
    *(const float **)((char *)owner + s->field) = *at;
    *at += slot_values(s);
    return 0;
}

static int bind_all(model *m, const weights *w, failure *f)
{
    float *at = m->memory;
    for (int i = 0; i < MODEL_SLOTS; i++)
        if (bind(m, w, OF_MODEL, &model_slots[i], &at, f)) return -1;
    for (int index = 0; index < DEPTH; index++)
        for (int i = 0; i < BLOCK_SLOTS; i++)
            if (bind(m, w, index, &block_slots[i], &at, f)) return -1;
    return 0;
}

static int check_config(const weights *w, failure *f)
{
    json_t *config = weights_metadata(w, "config");
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof numbers / sizeof *numbers; i++) {
        double found = json_number_value(json_object_get(config, numbers[i].key));
        if (fabs(found - numbers[i].value) > 1e-12)
            rc = fail(f, ATTN_KIND_IO, "%s: the configuration says %s = %g, emoji-dit has %g", w->path,
                      numbers[i].key, found, numbers[i].value);
    }
    json_decref(config);
    return rc;
}

static int read_classes(model *m, const weights *w, failure *f)
{
    m->classes = weights_metadata(w, "classes");
    int good = json_array_size(m->classes) == CLASSES;
    for (size_t i = 0; good && i < CLASSES; i++) good = json_is_string(json_array_get(m->classes, i));
    return good ? 0 : fail(f, ATTN_KIND_IO, "%s: the metadata should name %d classes", w->path, CLASSES);
}

int model_open(model *m, const char *path, failure *f)
{
    weights w;
    *m = (model){.values = count_values()};
    if (weights_open(&w, path, f)) return -1;
    size_t bytes = (size_t)m->values * sizeof(float);
    m->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    int rc = m->memory ? 0 : fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for %zu bytes of weights", bytes);
    if (!rc) rc = check_config(&w, f);
    if (!rc) rc = read_classes(m, &w, f);
    if (!rc) rc = bind_all(m, &w, f);
    weights_close(&w);
    if (rc) model_close(m);
    return rc;
}

void model_close(model *m)
{
    free(m->memory);
    json_decref(m->classes);
    *m = (model){0};
}

const char *model_class_name(const model *m, int id)
{
    return id == CLASSES ? "any" : json_string_value(json_array_get(m->classes, (size_t)id));
}

static int same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*b == ' ' && (*a == '-' || *a == '_'))) return 0;
    return *a == *b;
}

int model_class(const model *m, const char *name, failure *f)
{
    char list[512] = "";
    size_t n = 0;
    for (int id = 0; id <= CLASSES; id++)
        if (same_name(name, model_class_name(m, id))) return id;
    for (int id = 0; id <= CLASSES && n < sizeof list; id++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", id ? ", " : "", model_class_name(m, id));
    return fail(f, ATTN_KIND_UNKNOWN_NAME, "no emoji is called '%.40s'; there are: %s", name, list);
}
