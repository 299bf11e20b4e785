// grid 32768 x 1, block 256
typedef struct { char *at[3]; } weir_bias_gelu_f0dfbb6868f2c0c4_p;
typedef struct { long long at[6]; } weir_bias_gelu_f0dfbb6868f2c0c4_n;
WEIR_ENTRY __launch_bounds__(256)
weir_bias_gelu_f0dfbb6868f2c0c4(const weir_bias_gelu_f0dfbb6868f2c0c4_p p, const weir_bias_gelu_f0dfbb6868f2c0c4_n n) {
  typedef int ix;
  const ix count = ((ix)n.at[0]);
  const ix base = (ix)blockIdx.x * 512 + (ix)threadIdx.x;
  typedef union { uint4 w[1]; unsigned short e[8]; unsigned h[4]; } v;
  ix o[2];
  ix o0[2];
  typedef union { uint4 w[1]; unsigned short e[8]; unsigned h[4]; } v0;
  v0 x0[2];
  ix o1[2];
  typedef union { uint4 w[1]; unsigned short e[8]; unsigned h[4]; } v1;
  v1 x1[2];
#pragma unroll
  for (int u = 0; u < 2; u++) {
    const ix item = base + u * 256;
    if (item >= count) continue;
    const int e = 0;
    (void)e;
    ix c = 0;
    o[u] = 0;
    o0[u] = 0;
    o1[u] = 0;
  {
    ix r = item;
    {
    const ix q = weir_div(r, n.at[2]);
    const ix i = r - q * ((ix)n.at[1]);
    r = q;
    c = i;
    }
    {
    const ix i = r;
    o[u] += i * ((ix)n.at[3]);
    o0[u] += i * ((ix)n.at[4]);
    o1[u] += i * ((ix)n.at[5]);
    }
  }
    o[u] += c * 8;
    o0[u] += c * 8;
    o1[u] += c * 8;
    x0[u].w[0] = ((const uint4 *)((const unsigned short *)p.at[1] + o0[u]))[0];
    x1[u].w[0] = ((const uint4 *)((const unsigned short *)p.at[2] + o1[u]))[0];
  }
#pragma unroll
  for (int u = 0; u < 2; u++) {
    const ix item = base + u * 256;
    if (item >= count) continue;
    v y;
#pragma unroll
    for (int e = 0; e < 8; e++) {
  float s0;
  {
#define K(x) ((float)(x))
#define FMOD(a, b) weir_fmod_f(a, b)
    const float a = weir_get_bf16(x0[u].e[e]);
    const float b = weir_get_bf16(x1[u].e[e]);
    s0 = (a + b);
#undef K
#undef FMOD
  }
      const float t0 = weir_get_bf16(weir_bf16_of_f(s0));
  float t;
  {
#define K(x) ((float)(x))
#define FMOD(a, b) weir_fmod_f(a, b)
    const float a = t0;
    t = (weir_quick_gelu(a));
#undef K
#undef FMOD
  }
      y.e[e] = weir_bf16_of_f(t);
    }
    ((uint4 *)((unsigned short *)p.at[0] + o[u]))[0] = y.w[0];
  }
}
