package differential

import (
	"fmt"
	"strings"
)

// diff shows what is to be taken from the lines that were recorded (want) and what is to be put there (got), with a line of
// what is the same around it.
func diff(want, got []string) string {
	// length[i][j] is the longest common part of want[i:] and got[j:].
	length := make([][]int, len(want)+1)
	for i := range length {
		length[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			length[i][j] = max(length[i+1][j], length[i][j+1])
			if want[i] == got[j] {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	var b strings.Builder
	same := "" // the last line that both have, until it is shown
	show := func(mark, line string) {
		if same != "" {
			fmt.Fprintf(&b, "       %s\n", same)
			same = ""
		}
		fmt.Fprintf(&b, "  %-4s %s\n", mark, line)
	}
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			same = want[i]
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && length[i+1][j] >= length[i][j+1]:
			show("want", want[i])
			i++
		default:
			show("got", got[j])
			j++
		}
	}
	return b.String()
}
