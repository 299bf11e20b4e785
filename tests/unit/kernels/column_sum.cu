// grid 32 x 64, block 256
typedef struct { char *at[2]; } weir_sum_bf16_02c3373f5b09fb43_p;
typedef struct { long long at[9]; } weir_sum_bf16_02c3373f5b09fb43_n;
WEIR_ENTRY __launch_bounds__(256)
weir_sum_bf16_02c3373f5b09fb43(const weir_sum_bf16_02c3373f5b09fb43_p p, const weir_sum_bf16_02c3373f5b09fb43_n n) {
  typedef int ix;
  const int side = (int)threadIdx.x % 32, lane = (int)threadIdx.x / 32;
  const ix lanes = 8;
  const ix result = (ix)blockIdx.x * 32 + side;
  const ix results = ((ix)n.at[0]), each = ((ix)n.at[1]), all = ((ix)n.at[2]);
  const ix begin = (ix)blockIdx.y * each;
  const ix end = begin + each < all ? begin + each : all;
  ix ox = 0, oy = 0, column = 0;
  (void)side, (void)column;
  {
    ix r = result;
    {
    const ix i = r;
    column = i;
    }
  }
  column *= 8;
  ox += column * ((ix)n.at[3]);
  oy += column * ((ix)n.at[4]);
  typedef union { uint4 w[1]; unsigned short e[8]; unsigned h[4]; } v;
  __shared__ float part[8][256];
  float a[8];
#pragma unroll
  for (int e = 0; e < 8; e++) a[e] = 0;
  if (result < results) {
#pragma unroll 4
  for (ix item = begin + lane; item < end; item += lanes) {
    ix at = ox, c = 0;
  {
    ix r = item;
    {
    const ix i = r;
    at += i * ((ix)n.at[5]);
    }
  }
    v x;
    x.w[0] = ((const uint4 *)((const unsigned short *)p.at[0] + at))[0];
#pragma unroll
    for (int e = 0; e < 8; e++) {
      
      a[e] = weir_sum_f(a[e], (float)weir_get_bf16(x.e[e]));
    }
  }
  }
#pragma unroll
  for (int d = 32; d < 32; d *= 2)
#pragma unroll
    for (int e = 0; e < 8; e++) a[e] = weir_sum_f(a[e], __shfl_xor_sync(WEIR_ALL, a[e], d));
  __syncthreads();
  if (threadIdx.x % 32 < 32) {
#pragma unroll
    for (int e = 0; e < 8; e++) part[threadIdx.x / 32][e * 32 + side] = a[e];
  }
  __syncthreads();
  if (threadIdx.x < 32 * 8) {
    float t = part[0][threadIdx.x];
#pragma unroll
    for (int i = 1; i < 8; i++) t = weir_sum_f(t, part[i][threadIdx.x]);
    part[0][threadIdx.x] = t;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < 8; e++) a[e] = part[0][e * 32 + side];
  const ix first = (result - column / 8) / ((ix)n.at[7]) * ((ix)n.at[6]) + column;
  oy = (ix)blockIdx.y * ((ix)n.at[8]) + first;
  if (result < results && lane == 0) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
      
      ((float *)p.at[1] + oy)[e * 1] = weir_f32_of_f(a[e]);
    }
  }
}
// grid 64 x 1, block 256
typedef struct { char *at[2]; } weir_sum_f32_941c255b3776896f_p;
typedef struct { long long at[7]; } weir_sum_f32_941c255b3776896f_n;
WEIR_ENTRY __launch_bounds__(256)
weir_sum_f32_941c255b3776896f(const weir_sum_f32_941c255b3776896f_p p, const weir_sum_f32_941c255b3776896f_n n) {
  typedef int ix;
  const int side = (int)threadIdx.x % 32, lane = (int)threadIdx.x / 32;
  const ix lanes = 8;
  const ix result = (ix)blockIdx.x * 32 + side;
  const ix results = ((ix)n.at[0]), each = ((ix)n.at[1]), all = ((ix)n.at[2]);
  const ix begin = (ix)blockIdx.y * each;
  const ix end = begin + each < all ? begin + each : all;
  ix ox = 0, oy = 0, column = 0;
  (void)side, (void)column;
  {
    ix r = result;
    {
    const ix i = r;
    column = i;
    }
  }
  column *= 4;
  ox += column * ((ix)n.at[3]);
  oy += column * ((ix)n.at[4]);
  typedef union { uint4 w[1]; float e[4]; } v;
  __shared__ double part[8][128];
  double a[4];
#pragma unroll
  for (int e = 0; e < 4; e++) a[e] = 0;
  if (result < results) {
#pragma unroll 4
  for (ix item = begin + lane; item < end; item += lanes) {
    ix at = ox, c = 0;
  {
    ix r = item;
    {
    const ix i = r;
    at += i * ((ix)n.at[5]);
    }
  }
    v x;
    x.w[0] = ((const uint4 *)((const float *)p.at[0] + at))[0];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      
      a[e] = weir_sum_d(a[e], (double)weir_get_f32(x.e[e]));
    }
  }
  }
#pragma unroll
  for (int d = 32; d < 32; d *= 2)
#pragma unroll
    for (int e = 0; e < 4; e++) a[e] = weir_sum_d(a[e], __shfl_xor_sync(WEIR_ALL, a[e], d));
  __syncthreads();
  if (threadIdx.x % 32 < 32) {
#pragma unroll
    for (int e = 0; e < 4; e++) part[threadIdx.x / 32][e * 32 + side] = a[e];
  }
  __syncthreads();
  if (threadIdx.x < 32 * 4) {
    double t = part[0][threadIdx.x];
#pragma unroll
    for (int i = 1; i < 8; i++) t = weir_sum_d(t, part[i][threadIdx.x]);
    part[0][threadIdx.x] = t;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < 4; e++) a[e] = part[0][e * 32 + side];
  if (result < results && lane == 0) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      
      ((unsigned short *)p.at[1] + oy)[e * ((ix)n.at[6])] = weir_bf16_of_d(a[e]);
    }
  }
}
