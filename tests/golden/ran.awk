# What a trace (weir run --trace) says ran: `N devices: TIMES NAME[SIZE], K flops`, copies and waits left out. N
# devices did the same, each as often.
function word(key) { # the text of a member of the object on this line
  if (!match($0, "\"" key "\":\"[^\"]*\"")) return ""
  return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
function number(key) {
  if (!match($0, "\"" key "\":[0-9]+")) return ""
  return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
}
/"dur":/ && word("name") != "set" && word("cat") != "wait" {
  what = word("writes") == "" ? word("reads") : word("writes")
  gsub(/^[^[]*|[+][0-9]+$/, "", what)
  what = word("name") what (number("flops") ? ", " number("flops") " flops" : "")
  times[number("pid") SUBSEP what]++
}
END {
  for (key in times) {
    split(key, part, SUBSEP)
    devices[times[key] " " part[2]]++
  }
  for (line in devices) print devices[line] " devices: " line | "sort"
}
