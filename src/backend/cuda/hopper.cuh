// Instructions of sm_90a: matrix products of a warpgroup (wgmma), barriers in shared memory, bulk tensor copies.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "mbarrier", "cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include <cstdint>

namespace quire::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ inline void InitBarrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ inline void ExpectBytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void Wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// A box of a tensor at (k, row) to shared memory; its bytes are told to the barrier.
__device__ inline void CopyBox(uint32_t to, const CUtensorMap* map, uint32_t barrier, int k, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(k), "r"(row)
      : "memory");
}
// Shared memory written by ordinary stores and copies, for the products that read it next.
__device__ inline void FenceShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Rows of 128 bytes, chunks of 16 exchanged by the row's number modulo 8 (the widest swizzle); address of 1,024 bytes.
__device__ inline uint64_t Descriptor(uint32_t address) {
  return (uint64_t{1} << 62) | (uint64_t{64} << 32) | (uint64_t{64} << 16) | ((address & 0x3FFFF) >> 4);
}

__device__ inline void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ inline void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Products read and write registers from BeginProducts until WaitProducts, which the compiler does not see: results,
// and operands in registers, are held in place by a Settle before the one and after the other.
template <int kCount>
__device__ inline void Settle(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ inline void Settle(const uint32_t (&operand)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(const_cast<uint32_t&>(operand[i][j]))::"memory");
}

#define QUIRE_OUT8(d, i)                                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])

// d[64 x 128] (+)= a[64 x 16] b[128 x 16]^T, both in shared memory.
__device__ inline void MultiplyAsync(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
      "%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}"
      : QUIRE_OUT8(d, 0), QUIRE_OUT8(d, 8), QUIRE_OUT8(d, 16), QUIRE_OUT8(d, 24), QUIRE_OUT8(d, 32), QUIRE_OUT8(d, 40),
        QUIRE_OUT8(d, 48), QUIRE_OUT8(d, 56)
      : "l"(a), "l"(b), "r"(add));
}

// d[64 x 64] += a b, a in registers, b in shared memory as [16 of k, 64 columns].
__device__ inline void MultiplyAsync(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
      : QUIRE_OUT8(d, 0), QUIRE_OUT8(d, 8), QUIRE_OUT8(d, 16), QUIRE_OUT8(d, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d[64 x 64] (+)= a[64 x 16] b[64 x 16]^T, both in shared memory.
__device__ inline void MultiplyAsync(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}"
      : QUIRE_OUT8(d, 0), QUIRE_OUT8(d, 8), QUIRE_OUT8(d, 16), QUIRE_OUT8(d, 24)
      : "l"(a), "l"(b), "r"(add));
}
#undef QUIRE_OUT8

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace quire::cuda
