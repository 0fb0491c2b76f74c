# The console's producer and consumer, offsets, and records that are deleted.

console_produce() {
  create "$T-c" 1
  seq 20 | awk -v OFS='\t' '{ print "h1:a,h2:b", "k"$1, "v"$1 }' >"$OUT/in"
  produce "$T-c" --reader-property parse.key=true --reader-property parse.headers=true
}
console_consume() {
  local p show=(); for p in key headers offset partition timestamp; do show+=(--formatter-property "print.$p=true"); done
  all_of "$T-c" --max-messages 20 "${show[@]}"; ok
  lines 'CreateTime:[0-9]{13}.Partition:0.Offset:[0-9]+.h1:a,h2:b.k[0-9]+.v[0-9]+$' 20; has 'Offset:19.*k20.v20$'
}
console_codecs() {
  local z; create "$T-z" 1
  for z in none gzip snappy lz4 zstd; do seq -f "$z-%g" 50 >"$OUT/in"; produce "$T-z" --compression-codec "$z"; done
  SHOW=5 all_of "$T-z" --max-messages 250; ok
  for z in none gzip snappy lz4 zstd; do lines "^$z-[0-9]+$" 50; done
}
console_offset() { k console-consumer --topic "$T-c" --partition 0 --offset 15 --max-messages 5 --timeout-ms 60000; ok; has '^v16$'; lines '^v' 5; }
console_group() { all_of "$T-c" --group "$T-g" --max-messages 8; ok; lines '^v' 8; }
console_group_consumer() { all_of "$T-c" --group "$T-g848" --command-property group.protocol=consumer --max-messages 8; ok; lines '^v' 8; }

get_offsets() {
  k get-offsets --topic "$T-c" --time -1; ok; has "^$T-c:0:20$"
  k get-offsets --topic "$T-c" --time -2; has "^$T-c:0:0$"
  k get-offsets --topic "$T-c" --time -3; has "^$T-c:0:[0-9]+$"
  k get-offsets --topic "$T-c" --time 0; has "^$T-c:0:0$"
  k get-offsets --topic "$T-c" --time 99999999999999; ok
}
get_offsets_local() { k get-offsets --topic "$T-c" --time -4; ok; has "^$T-c:0:0$"; k get-offsets --topic "$T-c" --time -5; ok; }
delete_records() {
  create "$T-d" 1; seq 10 >"$OUT/in"; produce "$T-d"
  echo "{\"version\":1,\"partitions\":[{\"topic\":\"$T-d\",\"partition\":0,\"offset\":4}]}" >"$OUT/delete.json"
  k delete-records --offset-json-file "$OUT/delete.json"; ok; has "partition: $T-d-0.low_watermark: 4"
  k get-offsets --topic "$T-d" --time -2; has "^$T-d:0:4$"
  all_of "$T-d" --max-messages 6; lines '^[0-9]+$' 6; has '^5$'; hasnt '^4$'
}
