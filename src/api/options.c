/* Options as objects of the API; the table is base/options.def. */
#include "base/options.h"

#include <string.h>

#include "api/api.h"
#include "base/suggest.h"

struct weir_options {
  options values;
  rt_device_memory device_memory;
  rt_group *group; /* retained; NULL: none */
};

weir_status weir_options_set_device_allocator(weir_options *o, const weir_device_allocator *a) {
  weir_device_allocator given = {0};
  if (!o) return api_refuse("weir_options_set_device_allocator: the options are NULL");
  if (a && api_check_size(a->struct_size, "weir_options_set_device_allocator") != WEIR_OK)
    return WEIR_BAD_USAGE;
  if (a) api_copy_sized(&given, a, a->struct_size, sizeof given);
  if (a && (!given.alloc || !given.free))
    return api_refuse("weir_options_set_device_allocator: a function is missing");
  o->device_memory = (rt_device_memory){given.alloc, given.free, given.context};
  return WEIR_OK;
}

rt_device_memory api_device_memory(const weir_options *o) { return o->device_memory; }

weir_status weir_options_set_world(weir_options *o, const weir_world *w) {
  if (!o) return api_refuse("weir_options_set_world: the options are NULL");
  rt_group *before = o->group, *group = NULL;
  if (w && api_group_of(w, &group) != WEIR_OK) return WEIR_BAD_USAGE;
  o->group = group;
  if (o->group) o->group->retain(o->group);
  if (before) before->release(before);
  return WEIR_OK;
}

rt_group *api_world_group(const weir_options *o) { return o->group; }

size_t weir_option_count(void) { return OPTION_ID_COUNT; }

weir_status weir_option_describe(size_t i, weir_option_info *info) {
  if (i >= OPTION_ID_COUNT || !info) return api_refuse("there is no option number %zu", i);
  const option_row *row = option_at((option_id)i);
  *info = (weir_option_info){.name = row->name,
                             .environment = row->environment,
                             .placeholder = row->placeholder,
                             .initial = row->initial,
                             .help = row->help,
                             .commands = row->commands,
                             .letter = row->letter == ' ' ? '\0' : row->letter,
                             .repeats = row->kind == OPTION_LIST};
  return WEIR_OK;
}

static status read_environment(arena *scratch, void *context) {
  (void)scratch;
  return options_read_environment(context);
}

weir_status weir_options_create(weir_options **result) {
  if (!result) return api_refuse("weir_options_create: result is NULL");
  api_begin();
  weir_options *o = memory_alloc(&memory_default, sizeof *o);
  if (!o) return api_end(STATUS_OUT_OF_MEMORY);
  o->device_memory = (rt_device_memory){0};
  o->group = NULL;
  options_init(&o->values, &memory_default);
  weir_status st = api_call(&memory_default, read_environment, &o->values);
  if (st == WEIR_OK) *result = o;
  else weir_options_destroy(o);
  return st;
}

void weir_options_destroy(weir_options *o) {
  if (!o) return;
  options_destroy(&o->values);
  if (o->group) o->group->release(o->group);
  memory_free(&memory_default, o);
}

typedef struct set_call {
  options *values;
  const option_row *row;
  const char *value;
} set_call;

static status set_value(arena *scratch, void *context) {
  (void)scratch;
  set_call *c = context;
  return options_set(c->values, c->row, c->value);
}

static weir_status refuse_name(const char *name) {
  suggestion near;
  suggest_advice advice;
  suggest_init(&near, name, strlen(name));
  for (int i = 0; i < OPTION_ID_COUNT; i++) suggest_offer(&near, option_at((option_id)i)->name);
  return api_refuse("there is no option '%s'%s", name, suggest_text(&near, advice));
}

weir_status weir_options_set(weir_options *o, const char *name, const char *value) {
  if (!o || !name || !value) return api_refuse("weir_options_set: an argument is NULL");
  set_call c = {&o->values, option_find(name), value};
  if (!c.row) return refuse_name(name);
  return api_call(&memory_default, set_value, &c);
}

/* The row, or NULL after recording why not. */
static const option_row *row_for(const weir_options *o, const char *name, const void *result) {
  const option_row *row = name ? option_find(name) : NULL;
  if (!o || !result) (void)api_refuse("reading an option: an argument is NULL");
  else if (!row) (void)refuse_name(name ? name : "");
  return o && result ? row : NULL;
}

weir_status weir_options_get(const weir_options *o, const char *name, size_t k,
                             const char **value) {
  const option_row *row = row_for(o, name, value);
  if (!row) return WEIR_BAD_USAGE;
  *value = options_text(&o->values, row, k);
  return WEIR_OK;
}

weir_status weir_options_get_int(const weir_options *o, const char *name, int64_t *value) {
  const option_row *row = row_for(o, name, value);
  if (!row) return WEIR_BAD_USAGE;
  if (row->kind != OPTION_INT) return api_refuse("option '%s' is not an integer", name);
  *value = options_int(&o->values, row);
  return WEIR_OK;
}

weir_status weir_options_get_bool(const weir_options *o, const char *name, bool *value) {
  const option_row *row = row_for(o, name, value);
  if (!row) return WEIR_BAD_USAGE;
  if (row->kind != OPTION_FLAG) return api_refuse("option '%s' is not a flag", name);
  *value = options_flag(&o->values, row);
  return WEIR_OK;
}
