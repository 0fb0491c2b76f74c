package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// chunkBytes is the size of a piece of text, at most; maxFileBytes is the largest file that is taken for text.
	chunkBytes   = 64 << 10
	maxFileBytes = 16 << 20
)

// textFiles gives the files below the paths that look like text, each once, in order.
func textFiles(paths []string) ([]string, error) {
	seen := map[string]bool{}
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			if info, err := d.Info(); err != nil || info.Size() == 0 || info.Size() > maxFileBytes {
				return err
			}
			seen[name] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var files []string
	for name := range seen {
		files = append(files, name)
	}
	sort.Strings(files)
	return files, nil
}

// chunksOf reads a file in pieces that end between words. A file that is no text has none.
func chunksOf(name string) ([][]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil, nil
	}
	var chunks [][]byte
	for len(text) > 0 {
		n := len(text)
		if n > chunkBytes {
			n = chunkBytes
			if end := bytes.LastIndexFunc(text[:n], func(r rune) bool { return !isWord(r) && r != utf8.RuneError }); end > 0 {
				n = end
			}
		}
		chunks = append(chunks, text[:n])
		text = text[n:]
	}
	return chunks, nil
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// countWords adds the words of a text to counts.
func countWords(text []byte, counts map[string]int64) {
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return !isWord(r) }) {
		counts[word]++
	}
}
