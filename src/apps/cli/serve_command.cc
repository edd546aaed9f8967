#include <malloc.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/engine_host_command.h"
#include "apps/cli/model_choice.h"
#include "apps/cli/output.h"
#include "apps/cli/serve_arguments.h"
#include "base/log.h"
#include "server/openai_parts.h"

namespace quire::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{200};
constexpr milliseconds kPatience{5000};

// Signals that end or reload, taken by the main thread alone. To be made before any thread is.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // The next one; 0 when none comes within `wait`.
  int Next(milliseconds wait) const {
    const timespec time{wait.count() / 1000, wait.count() % 1000 * 1'000'000};
    return std::max(0, sigtimedwait(&set_, nullptr, &time));
  }

 private:
  sigset_t set_;
};

// As many descriptors as the system gives; returns how many. Children inherit that.
int64_t RaiseFileLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

// Connections for which there are descriptors beside those of pages at work and of the server itself.
int MostConnections(int wanted, int workers) {
  constexpr int64_t kOwnFiles = 64, kFilesOfPage = 4;
  const int64_t most = std::max(kOwnFiles, RaiseFileLimit() - kOwnFiles - kFilesOfPage * workers);
  if (most >= wanted) return wanted;
  PrintNote("the limit of open files (ulimit -n) allows " + std::to_string(most) + " connections, not " +
            std::to_string(wanted));
  return static_cast<int>(most);
}

std::unique_ptr<ServedModel> Load(const ServeArguments& arguments, const ModelChoice& choice) {
  auto model = std::make_unique<ServedModel>();
  EngineOptions engine = arguments.engine;
  engine.vision_rows = int64_t{engine.image_tokens} * (engine.max_sequences + arguments.vision_cache_pages);
  MachineArguments machine = arguments.machine;
  const bool has_host = machine.device == "auto" || machine.device == "cpu" || machine.device == "reference";
  if (arguments.device_process == "on" || (arguments.device_process == "auto" && !has_host)) {
    machine.model = choice.folder;
    model->session = std::make_unique<Session>(
        choice.folder, RemoteEngineOptions{.command = EngineHostCommand(machine, engine), .engine = engine});
  } else {
    model->session = std::make_unique<Session>(choice.folder, MakeBackend(machine), engine);
  }
  model->session->engine().WaitReady();
  model->names = arguments.served_names;
  if (model->names.empty()) model->names.push_back(model->session->model_name());
  model->created = UnixSeconds();
  return model;
}

std::string Ready(const ServedModel& model, int64_t load_ms) {
  const Engine& engine = model.session->engine();
  const EngineStats stats = engine.stats();
  return "ready: " + model.names.front() + ", " + engine.backend_info().name + ", " +
         std::string(Name(engine.backend_info().dtype)) + ", context of " + std::to_string(engine.context_tokens()) +
         " tokens" + (stats.kv_pages > 0 ? ", KV cache of " + std::to_string(stats.kv_pages * kPageTokens) : "") +
         ", loaded in " + std::to_string(load_ms) + " ms";
}

int Serve(const ServeArguments& arguments) {
  const ModelChoice choice = ChooseModel(arguments.machine.model);
  if (choice.by_default)
    PrintNote("no model was named: serving the small one that comes with quire (clean Latin print)");
  return RunServer(arguments, [&] { return Load(arguments, choice); });
}

}  // namespace

int RunServer(const ServeArguments& arguments, const std::function<std::unique_ptr<ServedModel>()>& load) {
  const Signals signals;
  std::signal(SIGPIPE, SIG_IGN);
#ifdef __GLIBC__
  // Pictures' memory is used again, without page faults (3 ms a page), and there are few heaps to keep it in. Left to
  // itself glibc has 8 heaps a processor, each of which keeps what it once needed.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
  SetLogSink([](LogLevel, std::string_view text) { PrintNote(text); });
  ServerOptions options = arguments.server;
  options.api.workers = 2 * arguments.engine.max_sequences + 2;
  options.http.max_connections = MostConnections(options.http.max_connections, options.api.workers);
  Server server(options, [&] {
    const auto start = std::chrono::steady_clock::now();
    auto model = load();
    CheckContext(*model);
    const auto took = std::chrono::steady_clock::now() - start;
    PrintNote(Ready(*model, std::chrono::duration_cast<milliseconds>(took).count()));
    return model;
  });
  const bool tls = !options.http.tls_certificate.empty();
  const bool is_ipv6 = options.http.host.find(':') != std::string::npos;
  PrintNote("listening on " + std::string(tls ? "https" : "http") + "://" +
            (is_ipv6 ? "[" + options.http.host + "]" : options.http.host) + ":" + std::to_string(server.port()));

  for (bool loaded = false;;) {
    const int signal = signals.Next(kLookAgain);
    if (!loaded) loaded = server.Loaded(milliseconds(0));
    if (signal == SIGHUP) {
      try {
        server.ReloadKeys();
        PrintNote("the keys have been read again");
      } catch (const Error& error) {
        PrintError(error);
      }
    } else if (signal != 0) {
      break;
    }
  }
  PrintNote("ending: no new requests; what runs may end (a second signal ends it at once)");
  const auto until =
      std::chrono::steady_clock::now() + milliseconds(static_cast<int64_t>(arguments.drain_timeout_s * 1000));
  for (int signal = 0; signal != SIGTERM && signal != SIGINT; signal = signals.Next(milliseconds(50))) {
    if (server.Drain(milliseconds(0)) || std::chrono::steady_clock::now() >= until) break;
  }
  server.EndReplies();
  if (!server.Loaded(milliseconds(0))) std::_Exit(0);  // loading cannot be broken off
  // Ending what still runs waits for the device, which may hang.
  std::thread([] {
    std::this_thread::sleep_for(kPatience);
    PrintNote("the device does not answer: ending without it");
    std::_Exit(1);
  }).detach();
  return 0;
}

void AddServeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("serve", "Serve the model over HTTP: OpenAI's API, and one for documents")->group("Commands");
  const auto arguments = std::make_shared<ServeArguments>();
  AddServeOptions(command, arguments.get());
  command->callback([=] { *exit_code = Serve(*arguments); });
}

}  // namespace quire::cli
