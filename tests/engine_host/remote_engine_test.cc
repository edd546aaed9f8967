// The engine in another process: the same events as in this one, and what is left of them when that process dies.
#include "engine/remote_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tests/engine_host/host_scripts.h"
#include "tests/support/reading.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

RemoteEngineOptions Options(const HostFaults& faults = {}) {
  RemoteEngineOptions options{.command = {QUIRE_BINARY_DIR "/tests/scripted_host"}, .engine = HostEngineOptions()};
  for (const std::string& argument : faults.Arguments()) options.command.push_back(argument);
  options.first_pause = milliseconds(10);
  return options;
}
const ModelConfig& Config() {
  static const ModelConfig config = ScriptedModel(HostOptions()).config();
  return config;
}

struct Remote {
  explicit Remote(const HostFaults& faults = {}) : Remote(Options(faults)) {}
  explicit Remote(const RemoteEngineOptions& options) : engine(Config(), options) {}
  RemoteEngine engine;
};

// A file that is not there, and is not there afterwards.
struct NoFile {
  NoFile() { fs::remove(path); }
  ~NoFile() { fs::remove(path); }
  std::string path = fs::temp_directory_path() / ("quire_remote_" + std::to_string(getpid()));
};

pid_t TheChild() {
  const std::vector<pid_t> children = Children();
  EXPECT_EQ(children.size(), 1u);
  return children.empty() ? -1 : children[0];
}
void Eventually(const char* what, const std::function<bool()>& is_so) {
  const auto until = steady_clock::now() + std::chrono::seconds(30);
  while (!is_so()) {
    ASSERT_LT(steady_clock::now(), until) << what;
    std::this_thread::sleep_for(milliseconds(1));
  }
}
bool IsZombieOrGone(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return !(file >> number >> name >> state) || state == "Z";
}

void ExpectLost(const Reading& reading, const testing::Matcher<std::string>& text) {
  EXPECT_EQ(reading.end.reason, EndReason::kError);
  ASSERT_TRUE(reading.end.error);
  EXPECT_EQ(reading.end.error->kind(), ErrorKind::kDeviceLost);
  EXPECT_THAT(reading.end.error->what(), text);
  EXPECT_THAT(reading.end.detail, text);
}
void ExpectScript(const Reading& reading, int script) {
  EXPECT_EQ(reading.end.reason, EndReason::kStop) << reading.end.detail;
  EXPECT_EQ(reading.ids, HostText(script));
}

// All that is the same wherever a request runs: no times.
std::string Describe(const Reading& reading) {
  std::ostringstream text;
  text.precision(17);
  for (const StageEvent& stage : reading.stages)
    text << static_cast<int>(stage.stage) << " " << stage.done << "/" << stage.total << "\n";
  for (size_t i = 0; i < reading.ids.size(); ++i) {
    text << reading.ids[i] << " " << reading.logprobs[i] << " \"" << reading.pieces[i] << "\"";
    for (const auto& [id, logprob] : reading.top[i]) text << " " << id << ":" << logprob;
    text << "\n";
  }
  const EndEvent& end = reading.end;
  text << Name(end.reason) << " \"" << end.detail << "\" \"" << end.text << "\" " << end.usage.prompt_tokens << " "
       << end.usage.image_tokens << " " << end.usage.output_tokens << " " << end.usage.max_tokens << " "
       << end.confidence.tokens << " " << end.confidence.improbable << " " << end.confidence.sum_logprob;
  return text.str();
}

// ---- the same ------------------------------------------------------------------------------------------------------

std::vector<Request> MixedRequests() {
  std::vector<Request> requests;
  for (int i = 0; i < 30; ++i) {
    Request request = i % 3 == 0 ? AskScriptByPage(i) : AskScript(i, 2 + 7 * i);
    if (i % 4 == 1) request.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i), .top_logprobs = 3};
    if (i % 5 == 2) request.sampling.ngram_size = 2, request.sampling.ngram_window = 90;
    if (i % 5 == 2) request.sampling.ngram_whitelist = HostText(i);
    if (i % 7 == 3) request.max_tokens = i;
    if (i % 11 == 4) request.deadline = steady_clock::now() - milliseconds(1);
    requests.push_back(std::move(request));
  }
  return requests;
}
std::vector<std::string> ReadAll(Engine& engine) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (const Request& request : MixedRequests()) tickets.push_back(engine.Submit(request));
  std::vector<std::string> texts;
  for (const auto& ticket : tickets) texts.push_back(Describe(ReadToEnd(*ticket)));
  return texts;
}

TEST(RemoteEngineTest, GivesTheEventsOfALocalEngine) {
  LocalEngine local(std::make_unique<ScriptedModel>(HostOptions()), TinyTokenizer(), HostEngineOptions());
  Remote remote;
  const auto wanted = ReadAll(local), found = ReadAll(remote.engine);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(found[i], wanted[i]) << i;
}

TEST(RemoteEngineTest, SaysWhatTheEngineIs) {
  Remote remote;
  remote.engine.WaitReady();
  EXPECT_EQ(remote.engine.health().state, EngineHealth::State::kReady);
  EXPECT_EQ(remote.engine.backend_info().name, "reference");
  EXPECT_EQ(remote.engine.context_tokens(), 2048);
  EXPECT_EQ(remote.engine.config().lm.vocab, Config().lm.vocab);
}

std::string Refusal(Engine& engine, const Request& request) {
  try {
    engine.Submit(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(RemoteEngineTest, RefusesAtOnceWhatCanNeverRun) {
  LocalEngine local(std::make_unique<ScriptedModel>(HostOptions()), TinyTokenizer(), HostEngineOptions());
  Remote remote;
  EXPECT_THAT(Refusal(remote.engine, {}), HasSubstr("empty"));
  for (const Request& request : {Request{}, AskScript(0, 2048), Request{.before = {-1}}})
    EXPECT_EQ(Refusal(remote.engine, request), Refusal(local, request));
}

TEST(RemoteEngineTest, CountsWhatItHolds) {
  Remote remote({.step_ms = 2});
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int i = 0; i < 10; ++i) tickets.push_back(remote.engine.Submit(AskScript(30)));
  Eventually("four run", [&] { return remote.engine.stats().running == 4; });
  EXPECT_EQ(remote.engine.stats().waiting, 6);
  for (const auto& ticket : tickets) ExpectScript(ReadToEnd(*ticket), 30);
  const EngineStats stats = remote.engine.stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.restarts, 0);
}

// ---- cancel --------------------------------------------------------------------------------------------------------

TEST(RemoteCancelTest, ReachesARunningRequestAtOnce) {
  Remote remote({.step_ms = 5});
  const auto ticket = remote.engine.Submit(AskScript(39));
  Reading reading;
  ASSERT_TRUE(ReadTokens(*ticket, 3, &reading));
  ticket->Cancel();
  ReadToEnd(*ticket, &reading);
  EXPECT_EQ(reading.end.reason, EndReason::kCanceled);
  EXPECT_LT(reading.ids.size(), 30u);
}

TEST(RemoteCancelTest, WaitingRequestsEndWithoutARun) {
  Remote remote({.step_ms = 5});
  std::vector<std::shared_ptr<Ticket>> running;
  for (int i = 0; i < 4; ++i) running.push_back(remote.engine.Submit(AskScript(20)));
  Reading first;
  ASSERT_TRUE(ReadTokens(*running[3], 1, &first));
  std::vector<std::shared_ptr<Ticket>> waiting;
  for (int i = 0; i < 6; ++i) waiting.push_back(remote.engine.Submit(AskScript(20)));
  Request late = AskScript(20);
  late.deadline = steady_clock::now() + milliseconds(20);
  const auto too_late = remote.engine.Submit(late);
  for (const auto& ticket : waiting) ticket->Cancel();
  for (const auto& ticket : waiting) {
    const Reading reading = ReadToEnd(*ticket);
    EXPECT_EQ(reading.end.reason, EndReason::kCanceled);
    EXPECT_TRUE(reading.stages.empty());
  }
  EXPECT_EQ(ReadToEnd(*too_late).end.reason, EndReason::kDeadline);
  for (const auto& ticket : running) ticket->Cancel();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ReadToEnd(*running[i]).end.reason, EndReason::kCanceled);
}

TEST(RemoteCancelTest, TheEndOfTheEngineEndsAllAndItsProcess) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  pid_t child;
  {
    Remote remote({.step_ms = 5});
    for (int i = 0; i < 10; ++i) tickets.push_back(remote.engine.Submit(AskScript(39)));
    Reading reading;
    ASSERT_TRUE(ReadTokens(*tickets[0], 2, &reading));
    child = TheChild();
  }
  EXPECT_TRUE(IsZombieOrGone(child));
  EXPECT_TRUE(Children().empty());
  for (const auto& ticket : tickets) EXPECT_EQ(ReadToEnd(*ticket).end.reason, EndReason::kCanceled);
  tickets[0]->Cancel();  // of an engine that is gone
}

// ---- death ---------------------------------------------------------------------------------------------------------

// Ten requests at a process that dies when four of them run.
void ExpectWaitingOnesSurvive(Remote& remote, const std::function<void()>& kill,
                              const testing::Matcher<std::string>& text) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int i = 0; i < 10; ++i) tickets.push_back(remote.engine.Submit(AskScript(20 + i)));
  std::vector<Reading> readings(10);
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(ReadTokens(*tickets[i], 1, &readings[i]));
  kill();
  for (size_t i = 0; i < 10; ++i) ReadToEnd(*tickets[i], &readings[i]);
  for (size_t i = 0; i < 4; ++i) {
    ExpectLost(readings[i], text);
    EXPECT_EQ(readings[i].end.usage.output_tokens, static_cast<int>(readings[i].ids.size()));
  }
  for (int i = 4; i < 10; ++i) ExpectScript(readings[static_cast<size_t>(i)], 20 + i);
  EXPECT_EQ(remote.engine.stats().restarts, 1);
  EXPECT_EQ(remote.engine.health().state, EngineHealth::State::kReady);
}

TEST(RemoteDeathTest, KilledWhileRequestsRunAndWait) {
  Remote remote({.step_ms = 2});
  ExpectWaitingOnesSurvive(
      remote, [] { kill(TheChild(), SIGKILL); }, HasSubstr("was ended by signal 9 (Killed)"));
}

TEST(RemoteDeathTest, LostDevice) {
  const NoFile once;
  Remote remote({.step_ms = 2, .fail_step = 50, .once = once.path});
  ExpectWaitingOnesSurvive(
      remote, [] {}, AllOf(HasSubstr("ended with code 75"), HasSubstr("step 50 was told to fail")));
}

TEST(RemoteDeathTest, Crash) {
  const NoFile once;
  Remote remote({.step_ms = 2, .crash_step = 50, .once = once.path});
  ExpectWaitingOnesSurvive(
      remote, [] {}, HasSubstr("was ended by signal 6 (Aborted)"));
}

TEST(RemoteDeathTest, Nonsense) {
  const NoFile once;
  Remote remote({.step_ms = 2, .nonsense_step = 50, .once = once.path});
  ExpectWaitingOnesSurvive(
      remote, [] {}, HasSubstr("cannot be"));
}

RemoteEngineOptions OptionsWithLimit(const HostFaults& faults, milliseconds hang_limit) {
  RemoteEngineOptions options = Options(faults);
  options.hang_limit = hang_limit;
  return options;
}

TEST(RemoteDeathTest, Hang) {
  const NoFile once;
  Remote remote(OptionsWithLimit({.step_ms = 2, .hang_step = 50, .once = once.path}, milliseconds(1500)));
  ExpectWaitingOnesSurvive(
      remote, [] {}, HasSubstr("signal 9 (Killed): it had work and gave no sign of life for 1500 ms"));
}

TEST(RemoteDeathTest, StoppedInTheMiddle) {
  Remote remote(OptionsWithLimit({.step_ms = 2}, milliseconds(1500)));
  ExpectWaitingOnesSurvive(
      remote, [] { kill(TheChild(), SIGSTOP); }, HasSubstr("no sign of life"));
}

TEST(RemoteDeathTest, NoHangWithoutWorkOrWithSlowWork) {
  Remote remote(OptionsWithLimit({.step_ms = 400}, milliseconds(1200)));
  remote.engine.WaitReady();
  std::this_thread::sleep_for(milliseconds(1500));
  ExpectScript(ReadToEnd(*remote.engine.Submit(AskScript(1))), 1);
  EXPECT_EQ(remote.engine.stats().restarts, 0);
}

TEST(RemoteDeathTest, NoProcessOutlivesItsOwner) {
  FILE* owner = popen(QUIRE_BINARY_DIR "/tests/scripted_host orphan", "r");
  ASSERT_NE(owner, nullptr);
  pid_t host = -1;
  ASSERT_EQ(std::fscanf(owner, "%d", &host), 1);
  pclose(owner);
  Eventually("it is gone", [&] { return IsZombieOrGone(host); });
}

TEST(RemoteDeathTest, ManyTimesInARowWithWorkBetween) {
  Remote remote;
  for (int i = 0; i < 8; ++i) {
    ExpectScript(ReadToEnd(*remote.engine.Submit(AskScript(5))), 5);
    kill(TheChild(), SIGKILL);
    Eventually("another process", [&] { return remote.engine.stats().restarts == i + 1; });
  }
  ExpectScript(ReadToEnd(*remote.engine.Submit(AskScript(5))), 5);
}

TEST(RemoteDeathTest, FailsAfterFiveInARowAndHeals) {
  const NoFile heals;  // once.path is there: no faults
  HostFaults faults{.fail_step = 3, .once = heals.path};
  RemoteEngineOptions options = Options(faults);
  options.failed_pause = milliseconds(300);
  // The file is taken away before each process starts, until it may heal.
  options.command = {"/bin/sh", "-c", "[ -e " + heals.path + ".heal ] || rm -f " + heals.path + "; exec \"$@\"", "sh"};
  for (const std::string& word : Options(faults).command) options.command.push_back(word);
  const std::string heal = heals.path + ".heal";
  fs::remove(heal);
  Remote remote(options);
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int i = 0; i < 40; ++i) tickets.push_back(remote.engine.Submit(AskScript(20)));
  for (const auto& ticket : tickets) ExpectLost(ReadToEnd(*ticket), HasSubstr("step 3 was told to fail"));
  EXPECT_EQ(remote.engine.health().state, EngineHealth::State::kFailed);
  EXPECT_THAT(remote.engine.health().cause, HasSubstr("step 3 was told to fail"));
  EXPECT_EQ(remote.engine.stats().restarts, 4);
  EXPECT_THROW(remote.engine.WaitReady(), Error);
  try {
    remote.engine.Submit(AskScript(1));
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDeviceLost);
  }
  std::ofstream(heal) << "yes";
  Eventually("it heals", [&] { return remote.engine.health().state == EngineHealth::State::kReady; });
  ExpectScript(ReadToEnd(*remote.engine.Submit(AskScript(20))), 20);
  fs::remove(heal);
}

// ---- start ---------------------------------------------------------------------------------------------------------

void ExpectNotReady(Remote& remote, ErrorKind kind, const testing::Matcher<std::string>& text) {
  try {
    remote.engine.WaitReady();
    ADD_FAILURE() << "ready";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_THAT(error.what(), text);
  }
  EXPECT_EQ(remote.engine.health().state, EngineHealth::State::kFailed);
  EXPECT_THAT(remote.engine.health().cause, text);
}

TEST(RemoteStartTest, AModelThatCannotBeLoaded) {
  Remote remote({.bad_model = true});
  ExpectNotReady(remote, ErrorKind::kBadModel,
                 AllOf(HasSubstr("model.safetensors: wanted 7 layers, found 6"), HasSubstr("fetch it again")));
  EXPECT_EQ(remote.engine.stats().restarts, 0);
}

TEST(RemoteStartTest, AProgramThatIsNotThere) {
  Remote remote(RemoteEngineOptions{.command = {"/nowhere/quire"}});
  ExpectNotReady(remote, ErrorKind::kIo, HasSubstr("No such file"));
}

TEST(RemoteStartTest, AProgramThatIsAnother) {
  Remote remote(RemoteEngineOptions{.command = {"/bin/sh", "-c", "head -c 1000 /dev/zero | tr '\\0' x >&3"}});
  ExpectNotReady(remote, ErrorKind::kInternal, HasSubstr("cannot be"));
}

TEST(RemoteStartTest, ACrashIsTriedAgain) {
  Remote remote({.crash_at_start = true});
  const auto ticket = remote.engine.Submit(AskScript(3));
  ExpectNotReady(remote, ErrorKind::kDeviceLost, HasSubstr("signal 6"));
  ExpectLost(ReadToEnd(*ticket), HasSubstr("signal 6"));
  EXPECT_EQ(remote.engine.stats().restarts, 4);
}

TEST(RemoteStartTest, LoadingUntilReady) {
  RemoteEngineOptions options = Options();
  options.command = {"/bin/sh", "-c", "sleep 0.2; exec \"$@\"", "sh"};
  for (const std::string& word : Options().command) options.command.push_back(word);
  Remote remote(options);
  EXPECT_EQ(remote.engine.health().state, EngineHealth::State::kLoading);
  EXPECT_EQ(remote.engine.backend_info().name, "");
  const auto ticket = remote.engine.Submit(AskScript(3));
  remote.engine.WaitReady();
  ExpectScript(ReadToEnd(*ticket), 3);
}

TEST(RemoteStartTest, AnEngineThatEndsWhileItLoads) {
  const auto start = steady_clock::now();
  { Remote remote(RemoteEngineOptions{.command = {"/bin/sleep", "60"}}); }
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(Children().empty());
}

// ---- many ----------------------------------------------------------------------------------------------------------

long OpenFiles() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}
double ResidentMib(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  std::string word;
  double kib = 0;
  while (status >> word)
    if (word == "VmRSS:") status >> kib;
  return kib / 1024;
}

void ReadWithCancels(Engine& engine, int requests) {
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int i = client; i < requests; i += 8) {
        const int script = static_cast<int>(random() % kHostScripts);
        const auto ticket = engine.Submit(i % 3 ? AskScript(script) : AskScriptByPage(script));
        Reading reading;
        if (random() % 3 == 0 && ReadTokens(*ticket, random() % 100, &reading)) ticket->Cancel();
        if (reading.pieces.size() == reading.ids.size()) ReadToEnd(*ticket, &reading);
        if (!ticket->canceled()) ExpectScript(reading, script);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(RemoteManyTest, AThousandRequestsWithCancelsLeaveNothing) {
  Remote remote;
  ReadWithCancels(remote.engine, 300);
  const std::string child = std::to_string(TheChild());
  const long files = OpenFiles();
  const double ours_mib = ResidentMib("self"), theirs_mib = ResidentMib(child);
  ReadWithCancels(remote.engine, 1000);
  EXPECT_EQ(OpenFiles(), files);
  const double ours = ResidentMib("self") - ours_mib, theirs = ResidentMib(child) - theirs_mib;
  std::printf("  grown by %.1f MiB here, %.1f MiB in the process\n", ours, theirs);
  EXPECT_EQ(remote.engine.stats().restarts, 0);
  if (kSanitized) return;  // memory is kept back
  EXPECT_LT(ours, 8);
  EXPECT_LT(theirs, 8);
}

TEST(RemoteManyTest, DeathsLeaveNothing) {
  Remote remote;
  remote.engine.WaitReady();
  const long files = OpenFiles();
  for (int i = 0; i < 10; ++i) {
    ExpectScript(ReadToEnd(*remote.engine.Submit(AskScript(1))), 1);
    kill(TheChild(), SIGKILL);
    Eventually("another process", [&] { return remote.engine.stats().restarts == i + 1; });
  }
  remote.engine.WaitReady();
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(Children().size(), 1u);
}

// ---- time ----------------------------------------------------------------------------------------------------------

double MedianMs(Engine& engine, const Request& request, int times) {
  std::vector<double> ms;
  for (int i = 0; i < times; ++i) {
    const auto start = steady_clock::now();
    ReadToEnd(*engine.Submit(request));
    ms.push_back(std::chrono::duration<double, std::milli>(steady_clock::now() - start).count());
  }
  std::ranges::sort(ms);
  return ms[ms.size() / 2];
}

// From Submit to the end of a request of one token: more than a token's way alone.
TEST(RemoteTimeTest, TheWayIsShort) {
  LocalEngine local(std::make_unique<ScriptedModel>(HostOptions()), TinyTokenizer(), HostEngineOptions());
  Remote remote;
  Request request = AskScript(1);
  request.max_tokens = 1;
  MedianMs(remote.engine, request, 20);
  const double here_ms = MedianMs(local, request, 300), there_ms = MedianMs(remote.engine, request, 300);
  std::printf("  there and back: %.3f ms, %.3f ms in this process\n", there_ms, here_ms);
  EXPECT_LT(there_ms - here_ms, 5);
}

// A page of seven views.
TEST(RemoteTimeTest, PixelsTravel) {
  Remote remote;
  auto page = std::make_shared<PagePixels>();
  page->plan = PlanPage(Config().geometry, 2400, 1600, FindMode(Config().geometry, ""));
  for (const ViewPlan& view : page->plan.views)
    page->views.emplace_back(static_cast<size_t>(view.side_px) * view.side_px * 3, uint8_t{2});
  const Request request{.before = {0}, .page = page, .max_tokens = 1};
  ExpectScript(ReadToEnd(*remote.engine.Submit({.before = {0}, .page = page})), 2);
  std::printf("  %zu views: %.1f ms\n", page->views.size(), MedianMs(remote.engine, request, kSanitized ? 1 : 9));
}

}  // namespace
}  // namespace quire
