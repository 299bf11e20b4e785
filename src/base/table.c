#include "base/table.h"

#include <string.h>

void table_init(table *t, arena *memory) { *t = (table){.memory = memory}; }

uint64_t hash_mix(uint64_t seed, uint64_t value) {
  uint64_t x = (seed ^ value) + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t hash_bytes(const void *data, size_t size_bytes) {
  const unsigned char *p = data;
  uint64_t h = 0xCBF29CE484222325u;
  for (size_t i = 0; i < size_bytes; i++) h = (h ^ p[i]) * 0x100000001B3u;
  return hash_mix(h, size_bytes);
}

uint64_t hash_numbers(const int64_t *data, uint32_t n) {
  uint64_t h = n;
  for (uint32_t i = 0; i < n; i++) {
    h = (h ^ (uint64_t)data[i]) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  return hash_mix(h, n);
}

uint32_t table_find(const table *t, uint64_t hash,
                    bool (*same)(const void *context, uint32_t value), const void *context) {
  if (t->cap == 0) return 0;
  for (uint32_t i = (uint32_t)hash & (t->cap - 1); t->slots[i].value; i = (i + 1) & (t->cap - 1)) {
    if (t->slots[i].hash == hash && same(context, t->slots[i].value)) return t->slots[i].value;
  }
  return 0;
}

static void place(table *t, uint64_t hash, uint32_t value) {
  uint32_t i = (uint32_t)hash & (t->cap - 1);
  while (t->slots[i].value) i = (i + 1) & (t->cap - 1);
  t->slots[i] = (table_slot){hash, value};
}

static void rehash(table *t) {
  table old = *t;
  check(old.cap <= UINT32_MAX / 4);
  t->cap = old.cap ? old.cap * 2 : 16;
  t->slots = ARENA_ARRAY(t->memory, t->cap, table_slot);
  for (uint32_t i = 0; i < old.cap; i++) {
    if (old.slots[i].value) place(t, old.slots[i].hash, old.slots[i].value);
  }
}

void table_add(table *t, uint64_t hash, uint32_t value) {
  check(value != 0);
  if (2 * (t->len + 1) > t->cap) rehash(t);
  place(t, hash, value);
  t->len++;
}

void strings_init(strings *s, arena *memory) {
  *s = (strings){.memory = memory, .len = 1};
  table_init(&s->index, memory);
  map_init(&s->attached, memory);
}

typedef struct string_key {
  const strings *s;
  const char *text;
  size_t length;
} string_key;

static bool same_string(const void *context, uint32_t id) {
  const string_key *k = context;
  return k->s->length[id] == k->length && memcmp(k->s->text[id], k->text, k->length) == 0;
}

uint32_t strings_find(const strings *s, const char *text, size_t length) {
  string_key key = {s, text, length};
  return table_find(&s->index, hash_bytes(text, length), same_string, &key);
}

static void strings_grow(strings *s) {
  uint32_t cap = s->cap ? s->cap * 2 : 64;
  const char **text = ARENA_ARRAY(s->memory, cap, const char *);
  uint32_t *length = ARENA_ARRAY(s->memory, cap, uint32_t);
  if (s->cap) {
    memcpy(text, s->text, s->len * sizeof *text);
    memcpy(length, s->length, s->len * sizeof *length);
  } else {
    text[0] = "";
  }
  s->text = text;
  s->length = length;
  s->cap = cap;
}

uint32_t strings_intern(strings *s, const char *text, size_t length) {
  uint32_t found = strings_find(s, text, length);
  if (found) return found;
  check(length <= UINT32_MAX);
  if (s->len >= s->cap) strings_grow(s);
  uint32_t id = s->len++;
  s->text[id] = arena_string(s->memory, text, length);
  s->length[id] = (uint32_t)length;
  table_add(&s->index, hash_bytes(text, length), id);
  return id;
}

const char *strings_text(const strings *s, uint32_t id) { return id ? s->text[id] : ""; }

static uint64_t attached_key(uint32_t id, uint32_t kind) { return (uint64_t)kind << 32 | id; }

void strings_attach(strings *s, uint32_t id, uint32_t kind, uint32_t value) {
  map_put(&s->attached, attached_key(id, kind), value);
}

uint32_t strings_attached(const strings *s, uint32_t id, uint32_t kind) {
  return map_get(&s->attached, attached_key(id, kind), 0);
}

void map_init(map *m, arena *memory) {
  *m = (map){.len = 1};
  table_init(&m->index, memory);
}

typedef struct map_key {
  const map *m;
  uint64_t key;
} map_key;

static bool same_key(const void *context, uint32_t entry) {
  const map_key *k = context;
  return k->m->keys[entry] == k->key;
}

/* Maps with fewer entries, as most have, are searched linearly and have no index. */
enum { FEW = 8 };

static uint32_t map_entry(const map *m, uint64_t key) {
  map_key k = {m, key};
  if (m->index.cap == 0) {
    for (uint32_t i = 1; i < m->len; i++)
      if (m->keys[i] == key) return i;
    return 0;
  }
  return table_find(&m->index, hash_mix(0, key), same_key, &k);
}

uint32_t map_get(const map *m, uint64_t key, uint32_t missing) {
  uint32_t entry = map_entry(m, key);
  return entry ? m->values[entry] : missing;
}

static void map_grow(map *m) {
  arena *memory = m->index.memory;
  uint32_t cap = m->cap ? m->cap * 2 : FEW;
  uint64_t *keys = ARENA_ARRAY(memory, cap, uint64_t);
  uint32_t *values = ARENA_ARRAY(memory, cap, uint32_t);
  if (m->cap) {
    memcpy(keys, m->keys, m->len * sizeof *keys);
    memcpy(values, m->values, m->len * sizeof *values);
  }
  m->keys = keys;
  m->values = values;
  m->cap = cap;
}

static void map_index(map *m, uint32_t entry) {
  if (entry < FEW) return;
  for (uint32_t i = entry == FEW ? 1 : entry; i <= entry; i++)
    table_add(&m->index, hash_mix(0, m->keys[i]), i);
}

void map_put(map *m, uint64_t key, uint32_t value) {
  uint32_t entry = map_entry(m, key);
  if (!entry) {
    if (m->len >= m->cap) map_grow(m);
    entry = m->len++;
    m->keys[entry] = key;
    map_index(m, entry);
  }
  m->values[entry] = value;
}

map map_copy(const map *m, arena *memory) {
  map copy;
  map_init(&copy, memory);
  for (uint32_t i = 1; i < m->len; i++) map_put(&copy, m->keys[i], m->values[i]);
  return copy;
}
