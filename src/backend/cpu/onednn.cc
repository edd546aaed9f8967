#include "backend/cpu/onednn.h"

#include <omp.h>

#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <shared_mutex>
#include <string>
#include <tuple>

#include "backend/cpu/kernels.h"
#include "backend/cpu/products.h"
#include "base/error.h"

namespace quire::cpu {
namespace {

using dnnl::memory;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

struct Primitive {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
};

using Key = std::tuple<int64_t, int64_t, int64_t>;  // rows, columns, k

std::shared_ptr<const Primitive> Make(const Key& key) {
  const auto [rows, columns, k] = key;
  const memory::desc a({rows, k}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc b({k, columns}, memory::data_type::bf16, memory::format_tag::BA16a64b2a);
  const memory::desc c({rows, columns}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  // oneDNN's own scratchpad belongs to the thread that made the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, Engine());
  const std::string implementation = description.impl_info_str();
  if (implementation.find("ref") != std::string::npos)
    throw Error(ErrorKind::kUnsupported, "oneDNN has only a reference product (" + implementation + ") here", "",
                "set QUIRE_CPU_ISA=avx512");
  return std::make_shared<const Primitive>(Primitive{description, dnnl::matmul(description)});
}

// A primitive a shape: making one takes 0.3 ms.
std::shared_ptr<const Primitive> Find(const Key& key) {
  static std::shared_mutex mutex;
  static std::map<Key, std::shared_ptr<const Primitive>> primitives;
  constexpr size_t kMaxPrimitives = 1024;
  {
    std::shared_lock lock(mutex);
    if (const auto at = primitives.find(key); at != primitives.end()) return at->second;
  }
  auto made = Make(key);
  std::unique_lock lock(mutex);
  if (primitives.size() >= kMaxPrimitives) primitives.clear();
  return primitives.emplace(key, std::move(made)).first->second;
}

}  // namespace

void MultiplyBf16(const Bf16* a, int64_t rows, const Bf16* panels, int64_t count, int64_t k, float* c) {
  thread_local dnnl::stream stream = [] {
    omp_set_num_threads(1);
    return dnnl::stream(Engine());
  }();
  const auto primitive = Find({rows, count * kPanel, k});
  const auto& description = primitive->description;
  const auto bytes = static_cast<int64_t>(description.scratchpad_desc().get_size());
  const auto wrap = [](const memory::desc& desc, const void* data) {
    return memory(desc, Engine(), const_cast<void*>(data));
  };
  try {
    primitive->matmul.execute(
        stream, {{DNNL_ARG_SRC, wrap(description.src_desc(), a)},
                 {DNNL_ARG_WEIGHTS, wrap(description.weights_desc(), panels)},
                 {DNNL_ARG_DST, wrap(description.dst_desc(), c)},
                 {DNNL_ARG_SCRATCHPAD, wrap(description.scratchpad_desc(), ThreadScratch(Scratch::kOneDnn, bytes))}});
  } catch (const dnnl::error& error) {
    throw Error(ErrorKind::kInternal, std::string("oneDNN: ") + error.what());
  }
}

}  // namespace quire::cpu
