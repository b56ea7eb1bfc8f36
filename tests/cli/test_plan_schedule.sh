# Pipeline schedules: drawn in the terminal, as a picture, as a trace; figures as JSON. $1 is the program.
. "$(dirname "$0")/lib.sh"

expect 0 plan schedule 1f1b --stages 2 --micro-batches 3
grep -qF '  0 |F0F1    B0--F2B1--  B2--|' out || fail "the first stage of 1f1b: $(cat out)"
grep -qF '  1 |  F0B0--F1B1--F2B2--    |' out || fail "the second stage of 1f1b: $(cat out)"

# (P-1)/m of the work is the bubble of 1f1b; zb-h1 waits a third of it with equal pieces.
expect 0 plan schedule 1f1b zb-h1 --stages 4 --micro-batches 6 --json
grep -q '"schedule": "1f1b"[^[]*"time": 27.0' out || fail "1f1b does not take 27"
grep -q '"schedule": "zb-h1".*"time": 21.0' out || fail "zb-h1 does not take 21"

# The same as shares: of the time, and of the work, which is 3/6 of 1f1b and a third of that of zb-h1.
grep -q '"schedule": "1f1b"[^[]*"bubble_of_work": 0.50*[1,]' out || fail "1f1b does not wait half of its work"
expect 0 plan schedule 1f1b zb-h1 --stages 4 --micro-batches 6
grep -q '^1f1b .* 33.3%  *50.0% ' out && grep -q '^zb-h1 .* 14.3%  *16.7% ' out || fail "$(cat out)"

# Both ways of dualpipe, and pieces that are done together: half of the room each, one above the other, at the same time.
expect 0 plan schedule dualpipe --stages 4 --micro-batches 8
grep -qF '  0 |F0F1F2f4i4w4f5F3-b5-  f6-B0-b6--  f7-B1-b7--I2W2I3W3|' out || fail "dualpipe: $(cat out)"
has out "two copies of the model"
expect 0 plan schedule dualpipe --stages 8 --micro-batches 20 --times 1,1,1,0,2.5 --json
grep -q '"copies": 2, "time": 59.0' out || fail "dualpipe takes another time"
expect 0 plan schedule dualpipe --stages 4 --micro-batches 8 -o s.svg
grep -q 'height="7.5"' s.svg || fail "nothing lies above another in the picture"
grep 'height="7.5"' s.svg | grep -q '<text' && fail "a number in half of a row"
expect 0 plan schedule dualpipe --stages 4 --micro-batches 8 -o s.json
[ "$(grep '"kept by stage' s.json | sed -n 's/.*"passes": \([0-9]*\).*/\1/p' | sort -n | tail -1)" = 5 ] || fail "5 are kept at most"
expect 2 plan schedule dualpipe --stages 4 --micro-batches 6
has err "use 8 micro-batches"
expect 2 plan schedule dualpipe --stages 3
# Of all schedules those that cannot be are named.
expect 0 plan schedule --stages 3 --micro-batches 7
has out "dualpipe     not drawn: dualpipe has stages in pairs, and 3 are none"
has out "interleaved  not drawn: "
expect 0 plan schedule --stages 3 --micro-batches 7 --json
grep -q '"left_out": \[{"schedule": "interleaved"' out || fail "what is left out is not in the JSON"

expect 0 plan schedule --stages 3 --micro-batches 6 -o s.svg
grep -q '<title>forward of micro-batch 5, chunk 0</title>' s.svg || fail "no forward of 5 in the picture"
expect 0 plan schedule zb-v --stages 2 --micro-batches 4 -o s.json
[ "$(grep -c '"ph": "X"' s.json)" = 48 ] || fail "the trace of zb-v has not 48 pieces"
# What stages keep over time: as many go as come, and 4 at most, which are two whole micro-batches.
[ "$(grep -c '"kept by stage 0"' s.json)" = 16 ] || fail "what stage 0 keeps is not counted"
[ "$(sed -n 's/.*"passes": \([0-9]*\).*/\1/p' s.json | sort -n | tail -1)" = 4 ] || fail "it is more than 4"
grep '"kept by stage 1"' s.json | tail -1 | grep -q '"passes": 0' || fail "something stays"
expect 0 plan schedule zb-v --stages 2 --micro-batches 4 -o s.svg
grep -q '<title>activations of 2 micro-batches at most</title>' s.svg || fail "no memory in the picture"

# Numbers are whole or left out: micro-batch 10 is not 1.
expect 0 plan schedule 1f1b --stages 2 --micro-batches 12
grep -qF 'F10B9----F11B10---' out || fail "$(cat out)"
expect 0 plan schedule 1f1b --stages 4 --micro-batches 16
grep -qF '  0 |FFFF      B-FB-FB-F' out || fail "$(cat out)"
has out "Micro-batches have no room for their numbers"

expect 0 plan schedule --stages 64 --micro-batches 256
grep -q 'Too long to be drawn' out || fail "64 stages are drawn"
expect 2 plan schedule gpipe
expect 2 plan schedule interleaved --stages 4 --micro-batches 6
grep -q '8 micro-batches' err || fail "no nearest number of micro-batches"
expect 2 plan schedule --times 1,0,1
for times in 0x1,1,1 1,1 1,1,1, 1,1,1,0,1,1 1,1,1x 1,1,1,0,0; do
    expect 2 plan schedule dualpipe --times $times
    has err "$times are not times"
done
expect 2 plan schedule 1f1b --times 1,1,1,0,5
has err 'a fifth time, of F and a backward together, is of dualpipe, which is not drawn'
expect 0 plan schedule --times 1,1,1,0,5
expect 2 plan schedule -o .svg
has err '.svg is an ending, and no name of a file'
expect 2 plan schedule -o s.png
finish
