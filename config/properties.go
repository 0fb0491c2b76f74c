package config

import (
	"fmt"
	"strconv"
	"strings"
)

// parseProperties reads Java's .properties syntax: comments with # and !, keys ended by =, : or a blank, escapes (\t \n \r \f \uXXXX, \ before any
// other character), and lines that go on behind a \ at their end. A key that comes again takes the later value.
func parseProperties(text string) (map[string]string, error) {
	props := map[string]string{}
	lines := logicalLines(text)
	for _, line := range lines {
		end := 0
		for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
			if line[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(line))
		rest := strings.TrimLeft(line[end:], " \t\f")
		if rest != "" && (rest[0] == '=' || rest[0] == ':') {
			rest = strings.TrimLeft(rest[1:], " \t\f")
		}
		key, err := unescape(line[:end])
		if err != nil {
			return nil, err
		}
		value, err := unescape(rest)
		if err != nil {
			return nil, err
		}
		props[key] = value
	}
	return props, nil
}

// logicalLines drops blank lines and comments, and joins lines that go on.
func logicalLines(text string) []string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var lines []string
	open := false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimLeft(line, " \t\f")
		if !open && (line == "" || line[0] == '#' || line[0] == '!') {
			continue
		}
		slashes := len(line) - len(strings.TrimRight(line, `\`))
		more := slashes%2 == 1
		if more {
			line = line[:len(line)-1]
		}
		if open {
			lines[len(lines)-1] += line
		} else {
			lines = append(lines, line)
		}
		open = more
	}
	return lines
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			if s[i] != '\\' {
				out.WriteByte(s[i])
			}
			continue
		}
		i++
		switch s[i] {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			if i+4 >= len(s) {
				return "", fmt.Errorf(`malformed \uxxxx in %q`, s)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`malformed \uxxxx in %q`, s)
			}
			out.WriteRune(rune(n))
			i += 4
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String(), nil
}
