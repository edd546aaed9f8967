// What the processor is and which of its instruction sets are used.
#pragma once

#include <string>

namespace quire::cpu {

struct Isa {
  std::string name;       // for people: "AVX-512"
  std::string processor;  // for people: its model name
  bool fast_bf16;         // products of bf16 operands are to be done by oneDNN: they are faster than float32
};

// Applies QUIRE_CPU_ISA (cpu.h) to the process and says what is used. Throws Error{kUsage}.
Isa ChooseIsa();

}  // namespace quire::cpu
