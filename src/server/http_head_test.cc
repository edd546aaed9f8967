// Heads of requests, and which web pages may send them.
#include "server/http_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http_guard.h"

namespace quire {
namespace {

HttpRequest Head(const HttpHeaders& headers, std::string method = "POST") {
  HttpRequest request;
  request.method = std::move(method);
  request.headers = headers;
  return request;
}

TEST(HttpHead, Authorities) {
  const auto parsed = [](std::string_view text) {
    const Authority found = ParseAuthority(text);
    return found.host + "|" + found.port;
  };
  EXPECT_EQ(parsed("Example.Org:80"), "example.org|80");
  EXPECT_EQ(parsed("localhost."), "localhost|");
  EXPECT_EQ(parsed("[::1]:8000"), "::1|8000");
  EXPECT_EQ(parsed("[::1]"), "::1|");
  EXPECT_EQ(parsed("[::1"), "[|:1");
  EXPECT_EQ(parsed(""), "|");
}

TEST(HttpHead, Targets) {
  const auto split = [](std::string_view target) {
    HttpRequest request = Head({{"host", "first"}});
    SetTarget(target, &request);
    EXPECT_EQ(request.headers.size(), 1u);
    return request.path + "|" + request.query + "|" + std::string(request.Header("Host"));
  };
  EXPECT_EQ(split("/v1/models?a=b?c"), "/v1/models|a=b?c|first");
  EXPECT_EQ(split("http://second:80/v1?x"), "/v1|x|second:80");
  EXPECT_EQ(split("HTTPS://second"), "/||second");
  EXPECT_EQ(split("http://second?x"), "/|x|second");
  EXPECT_EQ(split("/a://b"), "/a://b||first");
  EXPECT_EQ(split("ftp://second/a"), "ftp://second/a||first");
  EXPECT_EQ(split("*"), "*||first");
}

TEST(HttpHead, WhatHasNoMeaning) {
  const auto status = [](HttpHeaders headers, unsigned version = 11) {
    const auto fault = CheckHead(Head(headers), version);
    return fault ? fault->status : 200;
  };
  EXPECT_EQ(status({{"Host", "a"}}), 200);
  EXPECT_EQ(status({}), 400);
  EXPECT_EQ(status({}, 10), 200);
  EXPECT_EQ(status({{"Host", "a"}, {"HOST", "a"}}), 400);
  EXPECT_EQ(status({{"Host", "a"}}, 20), 505);
  EXPECT_EQ(status({{"Host", "a"}, {"Transfer-Encoding", "Chunked"}}), 200);
  EXPECT_EQ(status({{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"Content-Length", "1"}}), 400);
  EXPECT_EQ(status({{"Host", "a"}, {"Expect", "100-Continue"}}), 200);
  EXPECT_EQ(status({{"Host", "a"}, {"Expect", "gold"}}), 417);
  EXPECT_EQ(status({{"Host", "a"}, {"Expect", "gold"}}, 10), 200);
}

int Status(const HttpGuard& guard, const HttpRequest& head, bool keyed = false) {
  const auto error = guard.Refuse(head, keyed);
  return error ? error->status : 200;
}

TEST(HttpGuard, HostsOfAServerOnLoopback) {
  const HttpGuard guard("127.0.0.1", {}, {"Ocr.internal"});
  for (const char* host : {"localhost:8000", "LOCALHOST", "a.localhost", "127.0.0.1:8000", "127.8.8.8", "10.1.2.3",
                           "[::1]:8000", "[2001:db8::1]", "ocr.internal:8000", ""})
    EXPECT_EQ(Status(guard, Head({{"Host", host}})), 200) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8000",
                           "127.evil.example", "notlocalhost", "[::1]evil"}) {
    for (const char* method : {"GET", "POST", "OPTIONS"})
      EXPECT_EQ(Status(guard, Head({{"Host", host}}, method)), 421) << host;
    EXPECT_EQ(Status(guard, Head({{"Host", host}}), true), 200) << "with keys";
    EXPECT_EQ(Status(HttpGuard("0.0.0.0", {}, {}), Head({{"Host", host}})), 200) << "not on loopback";
    EXPECT_EQ(Status(HttpGuard("::1", {}, {}), Head({{"Host", host}})), 421);
    EXPECT_EQ(Status(HttpGuard("localhost", {}, {"*"}), Head({{"Host", host}})), 200);
  }
}

TEST(HttpGuard, Origins) {
  const HttpGuard guard("0.0.0.0", {"https://pages.example"}, {});
  const auto status = [&](const char* origin, const char* host, const char* method = "POST") {
    return Status(guard, Head({{"Host", host}, {"Origin", origin}}, method), true);
  };
  EXPECT_EQ(status("https://pages.example", "a"), 200);
  EXPECT_EQ(status("http://a:8000", "A:8000"), 200);
  EXPECT_EQ(status("https://a", "a:443"), 200);
  EXPECT_EQ(status("http://a", "a"), 200);
  EXPECT_EQ(status("http://a:8001", "a:8000"), 403);
  EXPECT_EQ(status("http://pages.example", "a"), 403);
  EXPECT_EQ(status("https://pages.example.evil", "a"), 403);
  EXPECT_EQ(status("null", "a"), 403);
  EXPECT_EQ(status("https://evil.example", "a", "GET"), 200) << "what it may not read";
  EXPECT_EQ(Status(HttpGuard("::1", {"*"}, {}), Head({{"Host", "[::1]"}, {"Origin", "null"}})), 200);
}

}  // namespace
}  // namespace quire
