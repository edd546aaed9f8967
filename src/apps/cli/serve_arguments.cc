#include "apps/cli/serve_arguments.h"

#include <chrono>
#include <limits>

#include "apps/cli/options.h"

namespace quire::cli {
namespace {

using std::chrono::milliseconds;

constexpr int kMostPort = 65535;
constexpr double kMostSeconds = 1e7;
constexpr int64_t kMostMegabytes = 1 << 20;

// A length of time, given in seconds.
void AddSeconds(Group& group, const std::string& name, milliseconds& value, const std::string& text) {
  group
      .AddFunction<double>(name, "SECONDS", text,
                           [&value](double seconds) { value = milliseconds(static_cast<int64_t>(seconds * 1000)); })
      ->check(NumberIn(0.001, kMostSeconds));
}

void AddMegabytes(Group& group, const std::string& name, int64_t& bytes, const std::string& text) {
  group.AddFunction<int64_t>(name, "MB", text, [&bytes](int64_t megabytes) { bytes = megabytes << 20; })
      ->check(NumberIn<int64_t>(1, kMostMegabytes));
}

// An origin as browsers send it.
std::string CheckOrigin(std::string& text) {
  const size_t scheme = text.find("://");
  const bool is_origin = scheme != text.npos && scheme > 0 && scheme + 3 < text.size() &&
                         text.find_first_of("/ ", scheme + 3) == text.npos;
  if (text == "*" || is_origin) return {};
  return "wanted scheme and host as https://example.org, without a path, or *, found \"" + text + "\"";
}

void AddNetOptions(CLI::App* command, ServeArguments& a) {
  Group group(command, "Network");
  HttpServerOptions& http = a.server.http;
  group.Add("--host", http.host, "ADDRESS", "Where to listen (default 127.0.0.1; 0.0.0.0: everywhere)")
      ->check(NotEmpty());
  group.Add("--port", http.port, "N", "0: one that is free (default 8000)")->check(NumberIn(0, kMostPort));
  group.Add("--tls-cert,--ssl-certfile", http.tls_certificate, "FILE", "Certificate (PEM): HTTPS instead of HTTP");
  group.Add("--tls-key,--ssl-keyfile", http.tls_key, "FILE", "Its key (PEM)");
  group
      .Add("--cors-origin,--allowed-origins", a.server.api.cors_origins, "ORIGIN...",
           "Web pages that may ask: https://example.org, or *")
      ->check(CLI::Validator(CheckOrigin, ""));
  group.Add("--allowed-host", a.server.api.allowed_hosts, "NAME...",
            "Names that a server without keys on this machine is called by, beside localhost; *: any");
  group.AddFlag("--allow-remote-images", a.server.api.allow_remote, "Fetch pictures that are named by http(s) URLs");
}

void AddAccessOptions(CLI::App* command, ServeArguments& a) {
  Group group(command, "Access");
  group.Add("--api-key", a.server.api.keys, "KEY...", "Only requests with one of these keys (QUIRE_API_KEY)")
      ->envname("QUIRE_API_KEY");
  group.Add("--api-key-file", a.server.api.key_file, "FILE", "Keys, one a line; SIGHUP reads it again");
  group.Add("--access-log", a.server.api.access_log, "FILE", "A line for each request; -: standard error");
}

void AddLimitOptions(CLI::App* command, ServeArguments& a) {
  Group group(command, "Limits");
  HttpServerOptions& http = a.server.http;
  ApiOptions& api = a.server.api;
  constexpr int kMostInt = std::numeric_limits<int>::max();
  AddMegabytes(group, "--max-body-mb", http.max_body_bytes, "Of a request (default 64)");
  group.Add("--max-pixels", api.decode.max_pixels, "N", "Of a picture (default 200000000)")
      ->check(NumberIn<int64_t>(1, 4'000'000'000));
  group
      .Add("--max-pixels-in-work", api.max_pixels_in_work, "N",
           "Of decoded pictures together; more wait, one that is larger goes alone (default 200000000)")
      ->check(NumberIn<int64_t>(1, 1'000'000'000'000));
  group.Add("--max-images,--max-pages", api.max_pages, "N", "Pages of a document at /v1/ocr (default 1000)")
      ->check(AtLeast(1));
  group.Add("--max-queue", api.max_queue, "N", "Requests that wait; more get 429 (default 1024)")
      ->check(NumberIn(1, kMostInt));
  group.Add("--max-connections", http.max_connections, "N", "Open connections (default 2000)")->check(AtLeast(1));
  group.Add("--timeout", api.timeout_s, "SECONDS", "Of a request; 0: none (default 0)")
      ->check(NumberIn(0.0, kMostSeconds));
  AddSeconds(group, "--header-timeout", http.header_timeout, "For a request's header to come (default 10)");
  AddSeconds(group, "--body-timeout", http.body_timeout, "For its body to come (default 120)");
  AddSeconds(group, "--idle-timeout", http.idle_timeout, "Of a connection between requests (default 75)");
  AddSeconds(group, "--write-timeout", http.write_timeout, "For a client to take what is sent (default 30)");
  group.Add("--drain-timeout", a.drain_timeout_s, "SECONDS", "For what runs to end after SIGTERM (default 60)")
      ->check(NumberIn(0.0, kMostSeconds));
}

void AddEngineOptions(CLI::App* command, ServeArguments& a) {
  Group group(command, "Engine");
  EngineOptions& engine = a.engine;
  group.Add("--served-model-name", a.served_names, "NAME...", "Names of the model in requests and replies")
      ->check(NotEmpty());
  group.Add("--max-sequences,--max-num-seqs", engine.max_sequences, "N", "Pages read at once (default 16)")
      ->check(NumberIn(1, 4096));
  group
      .Add("--max-step-rows,--max-num-batched-tokens", engine.max_step_rows, "N",
           "Tokens of one step of the decoder (default 512)")
      ->check(NumberIn(1, 1 << 20));
  group
      .Add("--context,--max-model-len", engine.context_tokens, "N",
           "Tokens of a prompt with its output (default 0: the model's)")
      ->check(AtLeast(0));
  group
      .AddFunction<double>(
          "--kv-cache-gb", "GB", "Of the KV cache (default: a context a page, or half of what is free)",
          [&engine](double gigabytes) { engine.kv_cache_bytes = static_cast<int64_t>(gigabytes * (1 << 30)); })
      ->check(NumberIn(0.001, 1e6));
  group
      .Add("--memory-share,--gpu-memory-utilization", engine.kv_memory_share, "SHARE",
           "Most of the free memory for the KV cache, without --kv-cache-gb (default 0.5)")
      ->check(NumberIn(0.01, 1.0));
  group
      .Add("--device-process", a.device_process, "WHEN",
           "Hold the device in a process that is started again when it dies: on, off, auto (default: not for a CPU)")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  group
      .Add("--vision-cache-pages", a.vision_cache_pages, "N",
           "Pages whose image tokens are kept, for more questions about them (default 8)")
      ->check(NumberIn(0, 1 << 20));
}

}  // namespace

void AddServeOptions(CLI::App* command, ServeArguments* arguments) {
  command->add_option("MODEL", arguments->machine.model, "As --model");
  AddNetOptions(command, *arguments);
  AddAccessOptions(command, *arguments);
  AddLimitOptions(command, *arguments);
  AddEngineOptions(command, *arguments);
  AddMachineOptions(command, &arguments->machine);
  command->footer(
      "Examples:\n"
      "  quire serve                            the small model that comes with quire, on port 8000\n"
      "  quire serve DeepSeek-OCR-2/ --port 80 --host 0.0.0.0 --api-key-file keys.txt\n"
      "\n"
      "docs/api.md describes the API. SIGTERM lets what runs end; SIGHUP reads the keys again.");
}

}  // namespace quire::cli
