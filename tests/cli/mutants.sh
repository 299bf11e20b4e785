#!/bin/bash
# Every planted mistake (tests/mutants/list.txt) has its place in the sources, and every place its mistake.
. "$(dirname "$0")/kit"
holds 'list and sources agree' scripts/mutants --check
finish
