#include "backend/cpu/isa.h"

#include <cstdlib>
#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "hwy/highway.h"

namespace quire::cpu {
namespace {

// The value of the first line "key : value" of /proc/cpuinfo; empty where there is none.
std::string CpuInfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(key) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

// Targets up to the named one; lower bits are better ones.
int64_t TargetsUpTo(const std::string& cap) {
  struct {
    const char* name;
    int64_t best;
  } constexpr kCaps[] = {{"scalar", HWY_SCALAR}, {"sse4", HWY_SSE4},        {"avx2", HWY_AVX2},
                         {"avx512", HWY_AVX3},   {"avx512_bf16", HWY_AVX3}, {"", 1}};
  for (const auto& entry : kCaps)
    if (cap == entry.name) return ~(entry.best - 1);
  throw Error(ErrorKind::kUsage, "QUIRE_CPU_ISA is \"" + cap + "\"", "",
              "wanted: scalar, sse4, avx2, avx512 or avx512_bf16");
}

std::string TargetName() {
  switch (hwy::SupportedTargets() & -hwy::SupportedTargets()) {
    case HWY_AVX3_DL:
    case HWY_AVX3:
      return "AVX-512";
    case HWY_AVX2:
      return "AVX2";
    case HWY_SSE4:
    case HWY_SSSE3:
      return "SSE4";
    case HWY_NEON:
      return "NEON";
    default:
      return "scalar";
  }
}

}  // namespace

Isa ChooseIsa() {
  const char* const set = std::getenv("QUIRE_CPU_ISA");
  const std::string cap = set ? set : "";
  hwy::DisableTargets(~TargetsUpTo(cap));

  Isa isa{TargetName(), CpuInfo("model name"), false};
  const dnnl::cpu_isa best = dnnl::get_effective_cpu_isa();
  const bool amx = best == dnnl::cpu_isa::avx512_core_amx;
  const bool bf16 = amx || best == dnnl::cpu_isa::avx512_core_bf16;
  // Intel's VDPBF16PS has half the rate of its float32 multiply-add (measured on Emerald Rapids: 87 against 165
  // GFLOP/s a core); AMD's has twice (Zen 4: 227 against 114).
  const bool wanted = cap.empty() ? amx || CpuInfo("vendor_id") != "GenuineIntel" : cap == "avx512_bf16";
  isa.fast_bf16 = bf16 && wanted;
  if (isa.fast_bf16) isa.name += amx ? " with AMX" : " with bf16";
  return isa;
}

}  // namespace quire::cpu
