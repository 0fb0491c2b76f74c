# Groups: listed, described while they live and after, moved, deleted.

groups_list() {
  k consumer-groups --list; ok; has "^$T-g$"; has "^$T-g848$"
  k consumer-groups --list --state; has "$T-g +.*Empty"
  k groups --list; ok; has "$T-g +Classic"; has "$T-g848 +Consumer"
}
groups_describe() {
  k consumer-groups --describe --group "$T-g"; ok; has "$T-g +$T-c +0 +8 +20 +12 "
  k consumer-groups --describe --group "$T-g" --state; has "$T-g .*Empty +0"
  k consumer-groups --describe --group "$T-g848"; has "$T-g848 +$T-c +0 +8 +20 +12 "
}
groups_live() {
  local row="$T-a +[0-4] .*jtlive" p i
  spawn "$OUT/live" "$SUITES/kafka/tool" console-consumer --bootstrap-server "$BOOTSTRAP" --topic "$T-a" --group "$T-live" --command-property client.id=jtlive; p=$SPAWNED
  until_has 30 "$row" consumer-groups --describe --group "$T-live"
  for i in 1 2 3 4 5; do [ "$(grep -cE "$row" <<<"$out")" -lt 3 ] || break; sleep 1; k consumer-groups --describe --group "$T-live"; done
  [ "$(grep -cE "$row" <<<"$out")" -ge 3 ]
  k consumer-groups --describe --group "$T-live" --members --verbose; has "jtlive.*$T-a"
  k consumer-groups --describe --group "$T-live" --state; has 'Stable +1'
  # These two end with status 0 and an error in their text.
  k consumer-groups --delete --group "$T-live"; has 'GroupNotEmptyException|not empty'
  k consumer-groups --reset-offsets --to-earliest --group "$T-live" --topic "$T-a" --execute; has 'can only be reset if.*inactive|state is Stable|not inactive'
  reap "$p"
}
groups_live_consumer() {
  local p
  spawn "$OUT/live2" "$SUITES/kafka/tool" console-consumer --bootstrap-server "$BOOTSTRAP" --topic "$T-a" --group "$T-live2" \
    --command-property group.protocol=consumer --command-property client.id=jtlive2; p=$SPAWNED
  until_has 30 "$T-a +[0-4] .*jtlive2" consumer-groups --describe --group "$T-live2"
  k consumer-groups --describe --group "$T-live2" --members --verbose; has jtlive2
  k consumer-groups --describe --group "$T-live2" --state --verbose; has Stable
  reap "$p"
}

groups_reset() {
  reset "$T-g" --to-earliest --topic "$T-c" --dry-run; ok; has "$T-c +0 +0"
  k consumer-groups --describe --group "$T-g"; has ' 8 +20 +12 '
  reset "$T-g" --to-offset 5 --topic "$T-c" --execute; ok
  k consumer-groups --describe --group "$T-g"; has ' 5 +20 +15 '
  reset "$T-g" --shift-by 3 --all-topics --execute; has "$T-c +0 +8"
  reset "$T-g" --to-datetime 2020-01-01T00:00:00.000 --topic "$T-c:0" --execute; has "$T-c +0 +0"
  reset "$T-g" --to-latest --topic "$T-c" --execute; has "$T-c +0 +20"
}
groups_export() {
  reset "$T-g" --to-current --all-topics --export --dry-run; ok
  grep -oE "\"?$T-c\"?,0,[0-9]+" <<<"$out" | sed 's/,[0-9]*$/,7/' >"$OUT/offsets.csv"; [ -s "$OUT/offsets.csv" ]
  reset "$T-g" --from-file "$OUT/offsets.csv" --execute; ok
  k consumer-groups --describe --group "$T-g"; has ' 7 +20 +13 '
}
groups_reset_new() { reset "$T-new" --to-offset 3 --topic "$T-c" --execute; ok; until_has 10 ' 3 +20 +17 ' consumer-groups --describe --group "$T-new"; }
groups_delete_offsets() {
  k consumer-groups --delete-offsets --group "$T-g" --topic "$T-c"; ok; has 'Request succeed|Successful'
  k consumer-groups --describe --group "$T-g"; hasnt ' 7 +20 +13 '
}
groups_delete() {
  k consumer-groups --delete --group "$T-new"; ok; has 'was successful'
  k consumer-groups --delete --group "$T-new"; has 'GroupIdNotFoundException|does not exist'
  k consumer-groups --describe --group "$T-new"; has 'GroupIdNotFoundException|does not exist'
}

# What a streams application has left is put back to its start: the offsets of its input, the topics that it made for itself.
streams_reset() {
  create "$T-app-store-changelog" 1; create "$T-app-by-key-repartition" 1; create "$T-apples" 1
  all_of "$T-c" --group "$T-app" --max-messages 8; ok
  k streams-application-reset --application-id "$T-app" --input-topics "$T-c" --dry-run; ok; has "Topic: $T-c Partition: 0 Offset: 0"; has "$T-app-store-changelog"
  k consumer-groups --describe --group "$T-app"; has ' 8 +20 +12 '
  k streams-application-reset --application-id "$T-app" --input-topics "$T-c"; ok
  k consumer-groups --describe --group "$T-app"; has ' 0 +20 +20 '
  k topics --list; hasnt "$T-app-"; has "$T-apples"
  k streams-application-reset --application-id "$T-app" --input-topics "$T-c" --to-latest; ok; has "Topic: $T-c Partition: 0 Offset: 20"
  k streams-application-reset --application-id "$T-app" --input-topics "$T-none"; fails; has 'not found|do not exist|Following input topics are not found'
}
