package sqlcore

import (
	"slices"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// A row that leaves while its body is read is as if it had left before.
func TestRowsThatLeftAreLeftOut(t *testing.T) {
	t.Parallel()
	for _, tc := range [][]int64{{}, {0}, {1, 2}, {0, 1, 0, 2, 3, 0}} {
		var b byRead
		var rows []outbox.LaneRow
		var want []int64
		for i, pos := range tc {
			rows, b.at = append(rows, outbox.LaneRow{Pos: pos}), append(b.at, i)
			if pos > 0 {
				want = append(want, pos)
			}
		}
		n := b.present(rows)
		var got []int64
		for i, r := range b.rows {
			got = append(got, r.Pos)
			if tc[b.at[i]] != r.Pos {
				t.Errorf("%v: the row at %d counts to read %d", tc, r.Pos, b.at[i])
			}
		}
		if n != len(want) || !slices.Equal(got, want) {
			t.Errorf("%v: got %v", tc, got)
		}
	}
}
