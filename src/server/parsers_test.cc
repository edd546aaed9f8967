// What reads foreign bytes: base64, forms, fields, addresses, keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <random>

#include "base/error.h"
#include "server/base64.h"
#include "server/fields.h"
#include "server/keys.h"
#include "server/multipart.h"
#include "server/page_request.h"
#include "server/remote_picture.h"

namespace quire {
namespace {

using testing::HasSubstr;

template <typename Call>
Error ErrorOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorKind::kInternal, "none"};
}

std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(Base64, VectorsOfTheRfc) {
  constexpr std::array<std::pair<const char*, const char*>, 7> kVectors = {{{"", ""},
                                                                            {"f", "Zg=="},
                                                                            {"fo", "Zm8="},
                                                                            {"foo", "Zm9v"},
                                                                            {"foob", "Zm9vYg=="},
                                                                            {"fooba", "Zm9vYmE="},
                                                                            {"foobar", "Zm9vYmFy"}}};
  for (const auto& [plain, coded] : kVectors) {
    EXPECT_EQ(EncodeBase64(Bytes(plain)), coded);
    EXPECT_EQ(DecodeBase64(coded), Bytes(plain));
  }
}

TEST(Base64, BlanksAndMissingPaddingAreTaken) {
  EXPECT_EQ(DecodeBase64("Zm9v\r\nYg"), Bytes("foob"));
  EXPECT_EQ(DecodeBase64(" Z m 8 "), Bytes("fo"));
}

TEST(Base64, AnythingElseIsNot) {
  for (const char* text : {"Z", "Zg=", "Zg===", "Zm9v=", "=Zg=", "Zg==Zg==", "Zm9-",
                           "Zm\xff"
                           "9",
                           "%5A", "Zm9vY==="})
    EXPECT_EQ(DecodeBase64(text), std::nullopt) << text;
}

TEST(Base64, ThereAndBack) {
  std::mt19937 random(1);
  for (size_t size = 0; size < 70; ++size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)), bytes);
  }
}

constexpr const char* kForm = "multipart/form-data; boundary=XX";

TEST(Multipart, PartsWithNamesAndFiles) {
  const std::string body =
      "preamble\r\n--XX\r\nContent-Disposition: form-data; name=\"mode\"\r\n\r\nbase\r\n--XX  \r\n"
      "content-disposition: form-data; name=file; filename=\"a \\\"b\\\".png\"\r\nContent-Type: image/png\r\n\r\n"
      "\x89PNG\r\n--X\r\n\r\n--XX--\r\nepilogue";
  const auto parts = ParseMultipart("Multipart/Form-Data; charset=x; boundary=\"XX\"", body);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "mode");
  EXPECT_EQ(parts[0].content, "base");
  EXPECT_EQ(parts[1].name, "file");
  EXPECT_EQ(parts[1].file_name, "a \"b\".png");
  EXPECT_EQ(parts[1].content_type, "image/png");
  EXPECT_EQ(parts[1].content, "\x89PNG\r\n--X\r\n");
}

TEST(Multipart, AnEmptyFormHasNoParts) {
  EXPECT_TRUE(ParseMultipart(kForm, "--XX--\r\n").empty());
}

TEST(Multipart, DamageIsSaid) {
  const std::string part = "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb";
  for (const auto& row : std::initializer_list<std::array<std::string, 3>>{
           {"multipart/form-data", part, "boundary"},
           {kForm, "", "does not come"},
           {kForm, part, "last boundary"},
           {kForm, part + "\r\n--XX\r\n", "last boundary"},
           {kForm, "--XX\r\nContent-Disposition: form-data\r\n\r\nb\r\n--XX--", "no name"},
           {kForm, "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n--XX--", "header does not end"},
           {kForm, "--XX\r\nname\r\n--XX--", "header does not end"}}) {
    const Error error = ErrorOf([&] { ParseMultipart(row[0], row[1]); });
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.message(), HasSubstr(row[2])) << row[1];
  }
}

TEST(Fields, NoneIsPassedOver) {
  const Json object = Json::Parse(R"({"a": 1, "b": null, "c": {"d": true}, "e": "x"})", "");
  Fields fields(object, "top");
  EXPECT_EQ(fields.Int("a", 0, 5), 1);
  EXPECT_EQ(fields.String("b"), std::nullopt);
  fields.Take("c");
  const Error error = ErrorOf([&] { fields.Finish(); });
  EXPECT_EQ(error.where(), "top.e");
  fields.String("e");
  fields.Finish();
}

TEST(Fields, SayWhatWasWantedAndFound) {
  const Json object = Json::Parse(R"({"a": 1.5, "b": "x", "c": [1], "d": 7})", "");
  Fields fields(object, "");
  EXPECT_THAT(ErrorOf([&] { fields.Int("a", 0, 5); }).what(), HasSubstr("a: wanted a whole number from 0 to 5, found"));
  EXPECT_THAT(ErrorOf([&] { fields.Number("b", 0, 1); }).what(), HasSubstr("found the string \"x\""));
  EXPECT_THAT(ErrorOf([&] { fields.String("c"); }).what(), HasSubstr("found an array"));
  EXPECT_THAT(ErrorOf([&] { fields.Bool("d"); }).what(), HasSubstr("wanted true or false"));
  EXPECT_THAT(ErrorOf([&] { fields.OneOf("b", {"y", "z"}); }).what(), HasSubstr("\"y\", \"z\""));
  EXPECT_THAT(ErrorOf([&] { fields.Require("e", "a thing"); }).what(), HasSubstr("e: wanted a thing, found nothing"));
  EXPECT_EQ(fields.Int("d", 0, 7), 7);
}

TEST(Fields, ANumberPastEveryIntIsOutOfRange) {
  for (const char* number : {"1e300", "-1e300", "9223372036854775808", "1e19"}) {
    const Json object = Json::Parse(std::string("{\"a\": ") + number + "}", "");
    Fields fields(object, "");
    EXPECT_EQ(ErrorOf([&] { fields.Int("a", -5, 5); }).kind(), ErrorKind::kUsage) << number;
  }
}

TEST(Fields, ANameTwiceIsRefused) {
  const Json object = Json::Parse(R"({"a": 1, "a": 2})", "");
  EXPECT_EQ(ErrorOf([&] { Fields fields(object, "x"); }).where(), "x.a");
}

TEST(Fields, NeutralValuesAlone) {
  constexpr std::array<Fields::Neutral, 2> kNeutral = {{{"n", "1"}, {"list", "[]"}}};
  const Json good = Json::Parse(R"({"n": 1.0, "list": []})", ""), bad = Json::Parse(R"({"list": [1]})", "");
  Fields(good, "").AcceptNeutral(kNeutral);
  EXPECT_EQ(ErrorOf([&] { Fields(bad, "").AcceptNeutral(kNeutral); }).where(), "list");
}

TEST(Picture, FormsThatAreTaken) {
  for (const char* text :
       {"data:image/png;base64,Zm9v", "DATA:image/jpeg;name=x;base64,Zm9v", "data:;base64,Zm9v", "Zm9v"})
    EXPECT_EQ(TakePicture(Json(text), "p", false).bytes, Bytes("foo")) << text;
  EXPECT_EQ(TakePicture(Json("https://a.example/b.png"), "p", true).url, "https://a.example/b.png");
}

TEST(Picture, FormsThatAreRefused) {
  for (const char* text : {"file:///etc/passwd", "FILE:/etc/passwd", "ftp://a/b", "http://a/b.png", "HTTPS://a/b.png",
                           "", "data:image/png,abc", "data:image/png;base64", "data:text/html;base64,Zm9v",
                           "data:image/png;base64,", "/etc/passwd!", "javascript:x"})
    EXPECT_EQ(ErrorOf([&] { TakePicture(Json(text), "p", false); }).where(), "p") << text;
  EXPECT_EQ(ErrorOf([&] { TakePicture(Json(7), "p", true); }).where(), "p");
}

TEST(Addresses, OnlyThePublicNet) {
  for (const char* address :
       {"8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001::1"})
    EXPECT_TRUE(IsPublicAddress(address)) << address;
  for (const char* address : {"127.0.0.1",
                              "127.255.0.3",
                              "10.1.2.3",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "100.127.1.1",
                              "0.0.0.0",
                              "255.255.255.255",
                              "224.0.0.1",
                              "198.18.0.1",
                              "192.0.2.7",
                              "::1",
                              "::",
                              "fe80::1",
                              "fc00::1",
                              "fd12::3",
                              "ff02::1",
                              "::ffff:127.0.0.1",
                              "::ffff:8.8.8.8",
                              "64:ff9b::7f00:1",
                              "2002:7f00:1::",
                              "2001:db8::1",
                              "2001::1",
                              "100::1",
                              "not an address",
                              ""})
    EXPECT_FALSE(IsPublicAddress(address)) << address;
}

TEST(RemotePicture, PrivateHostsAreNotAsked) {
  const RemotePictures remote({});
  for (const char* url : {"http://127.0.0.1/x", "http://localhost/x", "http://[::1]/x", "http://0x7f000001/x",
                          "http://2130706433/x", "http://0177.0.0.1/x", "http://169.254.169.254/latest",
                          "http://user@8.8.8.8/", "ftp://8.8.8.8/x", "http://8.8.8.8:22/x", "http:///x"})
    EXPECT_EQ(ErrorOf([&] { remote.Fetch(url, "p", [] { return false; }); }).where(), "p") << url;
}

TEST(KeysTest, FromOptionsAndFile) {
  const std::string file = testing::TempDir() + "quire-keys";
  std::ofstream(file) << "# ours\n\nfirst\n second \r\n";
  Keys keys({"third"}, file);
  EXPECT_TRUE(keys.any());
  for (const char* good : {"Bearer first", "Bearer second", "Bearer third"}) EXPECT_TRUE(keys.Allow(good)) << good;
  for (const char* bad : {"", "Bearer", "Bearer ", "first", "Bearer First", "Basic first", "Bearer first2"})
    EXPECT_FALSE(keys.Allow(bad)) << bad;
  std::ofstream(file) << "fourth\n";
  keys.Reload();
  EXPECT_TRUE(keys.Allow("Bearer fourth"));
  EXPECT_TRUE(keys.Allow("Bearer third"));
  EXPECT_FALSE(keys.Allow("Bearer first"));
  std::ofstream(file) << "# none\n";
  const Keys only_option({"x"}, "");
  EXPECT_TRUE(only_option.Allow("Bearer x"));
  EXPECT_EQ(ErrorOf([&] { Keys({}, file); }).kind(), ErrorKind::kUsage);
  EXPECT_EQ(ErrorOf([&] { Keys({}, file + "-none"); }).kind(), ErrorKind::kNotFound);
  EXPECT_EQ(ErrorOf([&] { Keys({" "}, ""); }).kind(), ErrorKind::kUsage);
  EXPECT_TRUE(Keys({" x\n"}, "").Allow("bEARER x"));  // as a variable's value may end
  std::ofstream(file) << "\xEF\xBB\xBF"
                      << "marked\n";
  EXPECT_TRUE(Keys({}, file).Allow("Bearer marked"));
  EXPECT_TRUE(Keys({}, "").Allow(""));
}

}  // namespace
}  // namespace quire
