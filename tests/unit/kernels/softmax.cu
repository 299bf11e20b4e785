// grid 16384 x 1, block 256
typedef struct { char *at[2]; } weir_softmax_bf16_5c25a2f0c1708333_p;
typedef struct { long long at[6]; } weir_softmax_bf16_5c25a2f0c1708333_n;
WEIR_ENTRY __launch_bounds__(256)
weir_softmax_bf16_5c25a2f0c1708333(const weir_softmax_bf16_5c25a2f0c1708333_p p, const weir_softmax_bf16_5c25a2f0c1708333_n n) {
  typedef int ix;
  typedef float real;
  typedef float acc;
  const int lane = (int)threadIdx.x % 256;
  const ix row = (ix)blockIdx.x * 1 + (ix)threadIdx.x / 256;
  const ix rows = ((ix)n.at[0]), n_row = ((ix)n.at[1]), first = ((ix)n.at[2]), count = ((ix)n.at[3]);
  const ix length = row < rows ? n_row : 0;
  (void)first, (void)count;
  ix ox = 0, oy = 0;
  {
    ix r = row;
    {
    const ix i = r;
    ox += i * ((ix)n.at[4]);
    oy += i * ((ix)n.at[5]);
    }
  }
  __shared__ acc part[8];
  typedef union { uint4 w[1]; unsigned short e[8]; unsigned h[4]; } v;
  real f[4][8];
  {
  v x[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const ix j = ((ix)lane + i * 256) * 8;
    const unsigned short *at = (const unsigned short *)p.at[1] + ox + j;
    x[i].w[0] = __ldcs((const uint4 *)(at) + 0);
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
  for (int e = 0; e < 8; e++) f[i][e] = (real)weir_get_bf16(x[i].e[e]);
  }
  real m = -WEIR_INF;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
  for (int e = 0; e < 8; e++) {
    const ix j = ((ix)lane + i * 256) * 8 + e;
    if (0) continue;
    const real g = f[i][e];
    m = weir_amax_f(m, g);
  }
  const real base = m == -WEIR_INF ? (real)0 : m;
  acc s = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
  for (int e = 0; e < 8; e++) {
    const ix j = ((ix)lane + i * 256) * 8 + e;
    if (0) continue;
    const real g = f[i][e];
    const real h = weir_quick_exp(g - base);
    s += h;
    f[i][e] = h;
  }
  real top = m;
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const real m2 = __shfl_xor_sync(WEIR_ALL, top, d);
    const acc s2 = __shfl_xor_sync(WEIR_ALL, s, d);
    const real t = weir_amax_f(top, m2);
    s = (top == -WEIR_INF ? 0 : s * weir_quick_exp(top - t)) +
        (m2 == -WEIR_INF ? 0 : s2 * weir_quick_exp(m2 - t));
    top = t;
  }
  __shared__ real tops[8];
  if (threadIdx.x % 32 == 0) {
    part[threadIdx.x / 32] = s;
    tops[threadIdx.x / 32] = top;
  }
  __syncthreads();
  top = -WEIR_INF, s = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const real m2 = tops[i];
    const acc s2 = part[i];
    const real t = weir_amax_f(top, m2);
    s = (top == -WEIR_INF ? 0 : s * weir_quick_exp(top - t)) +
        (m2 == -WEIR_INF ? 0 : s2 * weir_quick_exp(m2 - t));
    top = t;
  }
  const acc scale = (m == -WEIR_INF ? (acc)0 : (acc)weir_quick_exp(m - top)) / s;
  typedef union { uint4 w[1]; unsigned short e[8]; unsigned h[4]; } o_t;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const ix j = ((ix)lane + i * 256) * 8;
    
    o_t o;
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const real g = f[i][e];
      o.e[e] = weir_bf16_of_f(g * scale);
    }
    unsigned short *at = (unsigned short *)p.at[0] + oy + j;
    ((uint4 *)(at))[0] = o.w[0];
  }
}
