// quire doctor: what this machine can run, and whether it computes rightly.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/commands.h"
#include "apps/cli/machine_arguments.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "backend/cuda/cuda.h"
#include "backend/registry.h"
#include "backend/self_check.h"
#include "base/error.h"

namespace quire::cli {
namespace {

std::string Gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

// One device's report; false where something is wrong with it.
bool Examine(const std::string& name) {
  std::unique_ptr<Backend> backend;
  try {
    backend = CreateBackend(name, {.dtype = DType::kBf16});
  } catch (const Error& error) {
    Output().Write(name + ": cannot be used: " + error.what() + "\n");
    return false;
  }
  Output().Write(name + ": " + backend->info().device + ", " + Gigabytes(backend->FreeBytes()) + " of memory free\n");
  bool right = true;
  for (const OpCheck& check : CheckOps(*backend)) {
    right &= check.passed();
    char line[128];
    std::snprintf(line, sizeof line, "  %-34s error %.1e of %.1e", check.op.c_str(), check.error, check.limit);
    Output().Write(check.passed()            ? std::string(line) + "  ok\n"
                   : check.complaint.empty() ? std::string(line) + "  WRONG\n"
                                             : "  " + check.op + ": FAILED: " + check.complaint + "\n");
  }
  Output().Write(right ? "  computes as the reference does\n"
                       : "  computes wrongly: do not use it; please report this with the lines above\n");
  return right;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("doctor", "Tests what this machine can run: every device, op by op");
  auto device = std::make_shared<std::string>();
  Group(command, "Machine").Add("--device", *device, "NAME", "One of them only: cpu, cuda, cuda:N")->check(NotEmpty());
  command->callback([device, exit_code] {
    std::vector<std::string> names = {*device};
    if (device->empty()) names = {"cuda", "cpu"};
    bool right = true;
    for (const std::string& name : names) {
      const std::string problem = device->empty() && name == "cuda" ? CudaProblem() : "";
      if (problem.empty()) {
        right &= Examine(name);
      } else {  // a machine without a GPU is not ill
        Output().Write("cuda: not used: " + problem + "\n");
      }
    }
    *exit_code = right ? 0 : Info(ErrorKind::kUnsupported).exit_code;
  });
}

}  // namespace quire::cli
