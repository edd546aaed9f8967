#!/bin/sh
# Every #include of src/ points down the floors of the table in CONTRIBUTING.md, its one home. A file belongs to the
# longest row that its path begins with; tests may see what their floor links (quire_floor's TEST_DEPS), so are left out.
set -eu
cd "$1"
grep -rn --include='*.h' --include='*.cc' --include='*.inc' --exclude='*_test.cc' '^ *#include "' src |
  awk -F '|' '
    function floor_of(path, floor, best) {
      for (floor in allowed) if (index(path "/", floor "/") == 1 && length(floor) > length(best)) best = floor
      return best
    }
    FILENAME != "-" {
      if ($2 ~ /^ *floor *$/) in_table = 1
      else if (NF < 4) in_table = 0
      else if (in_table && $2 !~ /--/) { gsub(/ /, ""); allowed[$2] = "," $3 "," }
      next
    }
    {
      split($0, part, ":"); from = substr(part[1], 5)
      match($0, /".*"/); to = substr($0, RSTART + 1, RLENGTH - 2)
      if (to ~ /^hwy\//) next
      below = floor_of(to); above = floor_of(from)
      ++includes
      if (above == "" || below == "")
        print part[1] ":" part[2] ": " to ": " (above == "" ? from : to) " is on no floor of the table"
      else if (above != below && allowed[above] != ",all," && !index(allowed[above], "," below ","))
        print part[1] ":" part[2] ": " above " may not include " to
      else next
      failed = 1
    }
    END {
      if (includes < 100) { print "only " includes + 0 " includes were found: the check itself is broken"; failed = 1 }
      exit failed
    }' CONTRIBUTING.md -
