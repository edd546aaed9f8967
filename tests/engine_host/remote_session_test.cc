// `quire engine-host` with the shipped model: a page is read as in this process.
#include <gtest/gtest.h>

#include "backend/registry.h"
#include "document/session.h"
#include "tests/support/pictures.h"
#include "tests/support/tiny.h"

namespace quire {
namespace {

const std::string kModel = kRoot + "/models/tiny";
const EngineOptions kEngine{.max_sequences = 2, .context_tokens = 1024};

RemoteEngineOptions Remote(const std::string& model) {
  return {.command = {QUIRE_BINARY_DIR "/quire", "engine-host", "--model", model, "--device", "auto", "--dtype", "f32",
                      "--max-sequences", "2", "--context-tokens", "1024"},
          .engine = kEngine};
}

PageRecord Read(Session& session) {
  ReadOptions options = session.reader().DefaultOptions();
  options.mode = "base";
  options.max_tokens = 30;
  return session.reader().Read(ReadPng(kRoot + "/samples/line.png"), "line.png", 1, options);
}

TEST(RemoteSessionTest, ReadsAsALocalOne) {
  Session remote(kModel, Remote(kModel));
  Session local(kModel, CreateBackend("auto", {.dtype = DType::kF32}), kEngine);
  remote.engine().WaitReady();
  EXPECT_EQ(remote.engine().context_tokens(), 1024);
  EXPECT_EQ(remote.model_name(), local.model_name());
  const PageRecord wanted = Read(local), found = Read(remote);
  EXPECT_EQ(wanted.status, PageStatus::kLength);
  EXPECT_EQ(found.text, wanted.text);
  EXPECT_EQ(found.device, wanted.device);
  EXPECT_EQ(found.dtype, wanted.dtype);
}

TEST(RemoteSessionTest, SaysWhyAModelCannotBeLoaded) {
  Session session(kModel, Remote(kRoot + "/nowhere"));
  try {
    session.engine().WaitReady();
    ADD_FAILURE() << "ready";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound) << error.what();
  }
}

}  // namespace
}  // namespace quire
