/* Sorts a piece of a line by a block: by digits of 8 bits of the key, the lowest first.
 *
 * The number of an element is its key and its place in the piece, 32 bits for keys of up to 16 bits,
 * otherwise 64. A warp has neighbouring numbers, and goes through them 32 at a time, in order. For each
 * digit, the threads whose numbers have the same digit find each other by votes; a number's rank is how
 * many numbers before it in the warp have its digit. The rank and the sums over all lower digits and earlier
 * warps give its place, to which it moves through shared memory. Places beyond the line's end have the
 * largest key and stay last. */
#include "codegen/sort.h"

enum { DIGITS = 256, WARPS = CG_RADIX_BLOCK / 32, SHARED_BYTES = 32 << 10 };

static bool is_narrow(ir_dtype t) { return ir_dtype_size_bytes(t) <= 2; }

uint32_t cg_radix_piece(ir_dtype t) { return SHARED_BYTES / (is_narrow(t) ? 4u : 8u); }

static const char load[] =
    "  __shared__ $K s[$N];\n"
    "  __shared__ __align__(16) unsigned short counts[$warps][$D];\n"
    "  __shared__ unsigned starts[$D], sums[$D / 32];\n"
    "  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
    "  const ix line = (ix)blockIdx.x, piece = (ix)blockIdx.y;\n"
    "  ix oy = 0, ox = 0;\n"
    "  $K v[$E];\n"
    "  unsigned rank[$E];\n"
    "  (void)oy;\n";

static const char load_each[] = "#pragma unroll\n"
                                "  for (int e = 0; e < $E; e++) {\n"
                                "    const int t = (warp * $E + e) * 32 + lane;\n"
                                "    const ix j = piece * $P + t;\n"
                                "    v[e] = ($K)$mask << $S | (unsigned)t;\n"
                                "    if (j < $n) {\n";

static const char load_end[] = "      v[e] = ($K)key << $S | (unsigned)t;\n"
                               "    }\n"
                               "  }\n"
                               "  for (int shift = $S; shift < $S + $bits; shift += 8) {\n";

/* Of the threads with one digit, the last one counts them. */
static const char ranks[] =
    "    for (int t = (int)threadIdx.x; t < $warps * $D / 2; t += $T) ((unsigned *)counts)[t] = "
    "0;\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $E; e++) {\n"
    "      const unsigned digit = (unsigned)(v[e] >> shift) & ($D - 1);\n"
    "      unsigned peers = WEIR_ALL;\n"
    "#pragma unroll\n"
    "      for (int b = 0; b < 8; b++) {\n"
    "        const unsigned has = digit >> b & 1, votes = __ballot_sync(WEIR_ALL, has);\n"
    "        peers &= has ? votes : ~votes;\n"
    "      }\n"
    "      const unsigned before = counts[warp][digit];\n"
    "      rank[e] = before + (unsigned)__popc(peers & ((1u << lane) - 1));\n"
    "      __syncwarp();\n"
    "      if (peers >> lane == 1)\n"
    "        counts[warp][digit] = (unsigned short)(before + (unsigned)__popc(peers));\n"
    "      __syncwarp();\n"
    "    }\n"
    "    __syncthreads();\n";

/* A thread per digit: how often earlier warps have it, then how many numbers have lower digits. */
static const char places[] =
    "    unsigned lower = 0;\n"
    "    if (threadIdx.x < $D) {\n"
    "      unsigned total = 0;\n"
    "#pragma unroll\n"
    "      for (int i = 0; i < $warps; i++) {\n"
    "        const unsigned some = counts[i][threadIdx.x];\n"
    "        counts[i][threadIdx.x] = (unsigned short)total;\n"
    "        total += some;\n"
    "      }\n"
    "#pragma unroll\n"
    "      for (int d = 1; d < 32; d *= 2) {\n"
    "        const unsigned other = __shfl_xor_sync(WEIR_ALL, total, d);\n"
    "        if (lane & d) lower += other;\n"
    "        total += other;\n"
    "      }\n"
    "      if (lane == 0) sums[warp] = total;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x < $D) {\n"
    "      for (int i = 0; i < warp; i++) lower += sums[i];\n"
    "      starts[threadIdx.x] = lower;\n"
    "    }\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $E; e++) {\n"
    "      const unsigned digit = (unsigned)(v[e] >> shift) & ($D - 1);\n"
    "      s[starts[digit] + counts[warp][digit] + rank[e]] = v[e];\n"
    "    }\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < $E; e++) v[e] = s[(warp * $E + e) * 32 + lane];\n"
    "  }\n";

static const char results[] = "#pragma unroll\n"
                              "  for (int e = 0; e < $E; e++) {\n"
                              "    const ix place = (warp * $E + e) * 32 + lane;\n"
                              "    const ix j = piece * $P + (ix)(v[e] & $low);\n";

static const char to_scratch[] =
    "    if (place < $kept)\n"
    "      ((unsigned long long *)p.at[$scratch])[(line * $pieces + piece) * $kept + place] =\n"
    "          j < $n ? (unsigned long long)(v[e] >> $S) << 32 | (unsigned)j : ~0ull;\n"
    "  }\n";

static const char to_result[] = "    if (place >= $first && place < $end)\n"
                                "      (($Y *)p.at[$y])[oy + (place - $first) * $ys] = $value;\n"
                                "  }\n";

/* A thread has as many numbers as the line needs; if there are several pieces, all are full. */
void cg_put_radix(const sort_writer *x) {
  cg_writer *w = x->w;
  ir_dtype t = x->l->x.dtype;
  bool narrow = is_narrow(t);
  int64_t n = x->pieces > 1 ? x->piece : x->l->n;
  int64_t each = cg_ceildiv(n, CG_RADIX_BLOCK);
  const char *key = cg_sort_key(w, x->l);
  w->resident = 2;
  cg_set(w, "K", narrow ? "unsigned" : "unsigned long long");
  cg_set_int(w, "S", narrow ? 16 : 32);
  cg_set(w, "low", narrow ? "0xffffu" : "0xffffffffu");
  cg_set_int(w, "bits", (int64_t)ir_dtype_size_bytes(t) * 8);
  cg_set_int(w, "N", each * CG_RADIX_BLOCK);
  cg_set_int(w, "E", each);
  cg_set_int(w, "D", DIGITS);
  cg_set_int(w, "warps", WARPS);
  cg_put(w, load);
  cg_sort_put_offsets(x);
  cg_put(w, load_each);
  cg_put(w, key);
  cg_put(w, load_end);
  cg_put(w, ranks);
  cg_put(w, places);
  cg_put(w, results);
  cg_put(w, x->pieces > 1 ? to_scratch : to_result);
}
