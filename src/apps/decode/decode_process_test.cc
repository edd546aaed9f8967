// The decode process and its client together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/mmap_file.h"
#include "image/decoder_client.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kPictures = QUIRE_SOURCE_DIR "/tests/data/image/pictures/";

DecodeOptions WithProcesses(int processes) {
  return {.processes = processes, .program = QUIRE_BINARY_DIR "/quire-decode"};
}

PictureFile Picture(const std::string& name) {
  return PictureFile::Open(kPictures + name);
}

template <typename Call>
Error Failure(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kInternal, "nothing was thrown");
}

// Living children of this program, by their number.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string pid, name, state, parent;
    if (file >> pid >> name >> state >> parent && parent == std::to_string(getpid()) && state != "Z")
      children.push_back(std::stoi(pid));
  }
  return children;
}

void KillChildren() {
  for (pid_t child : Children()) kill(child, SIGKILL);
}

int OpenFiles() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
}

std::string TempFile(const std::string& name) {
  return testing::TempDir() + "/quire-" + std::to_string(getpid()) + "-" + name;
}

// A program of shell commands in place of quire-decode.
DecodeOptions Impostor(const std::string& name, const std::string& commands) {
  const std::string path = TempFile(name);
  std::ofstream(path) << "#!/bin/sh\n" << commands << "\n";
  chmod(path.c_str(), 0700);
  return {.processes = 1, .program = path};
}

TEST(DecodeProcess, DecodesEveryFormat) {
  DecodePool pool(WithProcesses(1));
  std::ifstream cases(kPictures + "cases.txt");
  std::string file, format, wanted;
  int page, orientation, tolerance;
  int count = 0;
  for (; cases >> file >> page >> format >> orientation >> tolerance >> wanted; ++count) {
    SCOPED_TRACE(file);
    const DecodedPage found = pool.Decode(Picture(file), page);
    EXPECT_EQ(found.info.format, format);
    EXPECT_EQ(found.info.orientation, orientation);
    EXPECT_THAT(found.warnings, testing::IsEmpty());
    const Image image = pool.Decode(Picture(wanted)).image;
    ASSERT_EQ(found.image.width_px, image.width_px);
    ASSERT_EQ(found.image.height_px, image.height_px);
    if (tolerance == 0) EXPECT_EQ(found.image.rgb, image.rgb);
    const PictureInfo info = pool.Inspect(Picture(file), page);
    EXPECT_EQ(info.width_px, image.width_px);
    EXPECT_EQ(info.pages, found.info.pages);
  }
  EXPECT_GT(count, 90);
  EXPECT_EQ(Children().size(), 1);  // the same process did it all
}

TEST(DecodeProcess, TellsWarningsAndErrors) {
  DecodePool pool(WithProcesses(1));
  const std::string jpeg = ReadFile(kPictures + "baseline.jpg");
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(jpeg.data()), jpeg.size());
  const DecodedPage cut = pool.Decode(PictureFile::FromBytes(bytes.first(bytes.size() * 3 / 4), "upload"));
  EXPECT_THAT(cut.warnings, testing::ElementsAre(HasSubstr("damaged")));

  const Error text = Failure([&] { pool.Decode(PictureFile::FromBytes(std::vector<uint8_t>(99, 'x'), "letter")); });
  EXPECT_EQ(text.kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(text.where(), "letter");
  EXPECT_THAT(text.hint(), HasSubstr("jpeg"));
  EXPECT_EQ(Failure([&] { pool.Decode(PictureFile::FromBytes({}, "nothing")); }).kind(), ErrorKind::kBadInput);
  EXPECT_EQ(Failure([&] { pool.Inspect(Picture("pages.tif"), 3); }).kind(), ErrorKind::kNotFound);
  EXPECT_EQ(Failure([&] { PictureFile::Open("/no/such/file"); }).kind(), ErrorKind::kNotFound);
  EXPECT_EQ(Failure([&] { PictureFile::Open("/tmp"); }).kind(), ErrorKind::kBadInput);
  EXPECT_EQ(pool.Decode(Picture("rgb.png")).image.width_px, 29);  // the process lives on
  EXPECT_EQ(Children().size(), 1);
}

TEST(DecodeProcess, LimitsAreCheckedBeforeDecoding) {
  DecodeOptions options = WithProcesses(1);
  options.max_pixels = 29 * 19;
  options.max_bytes = 100'000;
  DecodePool pool(options);
  EXPECT_EQ(pool.Decode(Picture("rgb.png")).image.width_px, 29);
  EXPECT_EQ(Failure([&] { pool.Decode(Picture("moved.gif")); }).kind(), ErrorKind::kTooLarge);
  EXPECT_EQ(Failure([&] { pool.Decode(PictureFile::FromBytes(std::vector<uint8_t>(100'001), "large")); }).kind(),
            ErrorKind::kTooLarge);
  const std::string bomb = "P5 100000 100000 255\n";
  const std::vector<uint8_t> bytes(bomb.begin(), bomb.end());
  const Error error = Failure([&] { pool.Inspect(PictureFile::FromBytes(bytes, "bomb")); });
  EXPECT_EQ(error.kind(), ErrorKind::kTooLarge);
  EXPECT_THAT(error.message(), HasSubstr("100000 x 100000"));
}

TEST(DecodeProcess, ShutsItselfIn) {
  DecodePool pool(WithProcesses(1));
  pool.Inspect(Picture("rgb.png"));
  ASSERT_EQ(Children().size(), 1);
  const fs::path process = "/proc/" + std::to_string(Children()[0]);
  const auto text_of = [&](const char* name) {
    std::ostringstream text;
    text << std::ifstream(process / name).rdbuf();
    return text.str();
  };
  EXPECT_THAT(text_of("status"), HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(text_of("limits"), testing::ContainsRegex("Max file size +0 "));
  // Only its channel and /dev/null, once it has closed the picture behind its answer.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::distance(fs::directory_iterator(process / "fd"), {}) > 3)
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
#ifdef QUIRE_SECCOMP  // and no sanitizer
  EXPECT_THAT(text_of("status"), HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(text_of("limits"), testing::Not(testing::ContainsRegex("Max address space +unlimited")));
#endif
}

TEST(DecodeProcess, ADecoderThatDiesFailsItsPictureOnly) {
  const std::string died = TempFile("died");
  const std::string real = QUIRE_BINARY_DIR "/quire-decode";
  DecodePool pool(
      Impostor("dies-once", "test -e " + died + " && exec " + real + " \"$@\"\ntouch " + died + "\nkill -SEGV $$"));
  const Error error = Failure([&] { pool.Decode(Picture("rgb.png")); });
  EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
  EXPECT_THAT(error.message(), HasSubstr("decoder died (signal 11"));
  EXPECT_THAT(error.where(), HasSubstr("rgb.png"));
  EXPECT_EQ(pool.Decode(Picture("rgb.png")).image.width_px, 29);
}

TEST(DecodeProcess, BadAnswersAreToldApart) {
  const auto message = [](const char* name, const std::string& commands, int cpu_seconds = 60) {
    DecodeOptions options = Impostor(name, commands);
    options.cpu_seconds = cpu_seconds;
    DecodePool pool(options);
    const Error error = Failure([&] { pool.Decode(Picture("rgb.png")); });
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  };
  EXPECT_THAT(message("ends", "exit 3"), HasSubstr("decoder ended (code 3)"));
  EXPECT_THAT(message("slow", "kill -XCPU $$"), HasSubstr("more than 60 s of processor time"));
  EXPECT_THAT(message("sleeps", "exec sleep 60", 0), HasSubstr("no answer"));
  EXPECT_THAT(message("garbage", "echo garbage >&0; exec sleep 60"), HasSubstr("no answer"));
}

TEST(DecodeProcess, AMissingProgramIsNamed) {
  const Error error = Failure([] { DecodePool pool({.program = "/no/quire-decode"}); });
  EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(error.where(), "/no/quire-decode");
}

TEST(DecodeProcess, AProcessKilledWhileIdleIsReplacedUnseen) {
  DecodePool pool(WithProcesses(1));
  pool.Inspect(Picture("rgb.png"));
  const std::vector<pid_t> before = Children();
  ASSERT_EQ(before.size(), 1);
  while (!Children().empty()) KillChildren();
  EXPECT_EQ(pool.Decode(Picture("rgb.png")).image.width_px, 29);
  EXPECT_NE(Children(), before);
}

// Several threads decode while somebody kills the processes: every call ends in pixels or in an Error, and nothing
// leaks.
TEST(DecodeProcess, ServesThreadsAndSurvivesKills) {
  const int files_before = OpenFiles();
  std::atomic<int> good = 0, failed = 0;
  {
    DecodePool pool(WithProcesses(3));
    std::atomic<bool> done = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i)
      threads.emplace_back([&, i] {
        for (int round = 0; round < 40; ++round) {
          try {
            const char* name = i % 2 == 0 ? "baseline.jpg" : "pages.tif";
            EXPECT_EQ(pool.Decode(Picture(name), i % 2 == 0 ? 0 : round % 3).image.rgb.size(), 29 * 19 * 3);
            ++good;
          } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
            ++failed;
          }
        }
      });
    std::thread killer([&] {  // after every twelve calls, so that most of them succeed
      for (int next = 12; !done; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
        if (good + failed < next) continue;
        KillChildren();
        next += 12;
      }
    });
    for (std::thread& thread : threads) thread.join();
    done = true;
    killer.join();
    while (!Children().empty()) KillChildren();  // those of the last kill may still be dying
    EXPECT_EQ(good + failed, 240);
    EXPECT_GT(good, 0);
    EXPECT_EQ(pool.Decode(Picture("rgb.png")).image.width_px, 29);
    EXPECT_LE(Children().size(), 3);
  }
  EXPECT_EQ(OpenFiles(), files_before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

}  // namespace
}  // namespace quire
