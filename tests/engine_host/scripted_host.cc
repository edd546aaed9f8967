// An engine host over the scripted model, which misbehaves as its arguments say (HostFaults).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "engine/engine_host.h"
#include "engine/host_process.h"
#include "engine/local_engine.h"
#include "engine/remote_engine.h"
#include "tests/engine_host/host_scripts.h"

namespace quire {
namespace {

class Faulty : public ScriptedModel {
 public:
  Faulty(const HostFaults& faults, std::shared_ptr<ScriptedControl> control)
      : ScriptedModel(HostOptions(), std::move(control)), faults_(faults) {}

  void Step(Context& c, const StepInputs& in, DecoderState& state, StepOutputs* out) override {
    ++steps_;
    if (steps_ == faults_.crash_step) std::abort();
    if (steps_ == faults_.hang_step) std::this_thread::sleep_for(std::chrono::hours(1));
    if (steps_ == faults_.nonsense_step) {
      const std::string nonsense(1000, '\xA5');
      if (write(kHostSocket, nonsense.data(), nonsense.size()) < 0) std::abort();
    }
    ScriptedModel::Step(c, in, state, out);
  }

 private:
  HostFaults faults_;
  int steps_ = 0;
};

std::unique_ptr<Engine> Make(const HostFaults& faults) {
  if (faults.bad_model)
    throw Error(ErrorKind::kBadModel, "wanted 7 layers, found 6", "model.safetensors", "fetch it again");
  auto control = std::make_shared<ScriptedControl>();
  control->fail_as = ErrorKind::kDeviceLost;
  control->fail_step = faults.fail_step;
  control->step_ms = faults.step_ms;
  return std::make_unique<LocalEngine>(std::make_unique<Faulty>(faults, control), TinyTokenizer(), HostEngineOptions());
}

// Owns a host, and dies of a signal while a request runs.
int Orphan(const std::string& program) {
  RemoteEngine engine(ScriptedModel(HostOptions()).config(),
                      {.command = {program, "step_ms=5"}, .engine = HostEngineOptions()});
  engine.Submit(AskScript(39))->Next();
  for (const pid_t pid : Children()) std::printf("%d\n", pid);
  std::fflush(stdout);
  return raise(SIGKILL);
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "orphan") return Orphan(argv[0]);
  HostFaults faults;
  std::map<std::string, int*> numbers = {{"step_ms", &faults.step_ms},
                                         {"fail_step", &faults.fail_step},
                                         {"crash_step", &faults.crash_step},
                                         {"nonsense_step", &faults.nonsense_step},
                                         {"hang_step", &faults.hang_step}};
  std::map<std::string, bool*> flags = {{"bad_model", &faults.bad_model}, {"crash_at_start", &faults.crash_at_start}};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t at = argument.find('=');
    const std::string name = argument.substr(0, at), value = argument.substr(at + 1);
    if (name == "once") {
      faults.once = value;
    } else if (flags.contains(name)) {
      *flags[name] = value == "1";
    } else {
      *numbers.at(name) = std::stoi(value);
    }
  }
  if (!faults.once.empty() && open(faults.once.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600) < 0)
    faults = {.step_ms = faults.step_ms};
  if (faults.crash_at_start) std::abort();
  return RunEngineHost(kHostSocket, [&] { return Make(faults); });
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(argc, argv);
}
