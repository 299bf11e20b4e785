/* A stand-in for a profiler, loaded by NVTX itself (NVTX_INJECTION64_PATH): counts ranges, and says at the
 * end how many there were and how many were never closed. */
#include <nvtx3/nvToolsExt.h>
#include <stdatomic.h>
#include <stdio.h>

#include "standin/standin.h"

STANDIN_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of);

static atomic_int pushed, open_ranges;

static int push(const char *name) {
  (void)name;
  (void)atomic_fetch_add(&pushed, 1);
  return atomic_fetch_add(&open_ranges, 1);
}

static int pop(void) { return atomic_fetch_sub(&open_ranges, 1) - 1; }

STANDIN_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const NvtxExportTableCallbacks *callbacks = table_of(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
  return 1;
}

__attribute__((destructor)) static void tell(void) {
  (void)fprintf(stderr, "profiler: %s ranges, %d open\n", pushed ? "some" : "no", open_ranges);
}
