package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// A document has parts that are written by different programs, each between two comments that name it.
func partMarks(name string) (begin, end string) {
	return "<!-- part: " + name + " -->\n", "<!-- end: " + name + " -->\n"
}

// writePart puts a part in the place of the document's of that name, or at its end, and leaves everything else as it is. A file that is not
// there is made.
func writePart(path, name, text string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	whole, err := replacePart(string(old), name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(whole), 0o644)
}

func replacePart(document, name, text string) (string, error) {
	begin, end := partMarks(name)
	text = begin + strings.TrimRight(text, "\n") + "\n" + end
	before, rest, found := strings.Cut(document, begin)
	if !found {
		if document != "" {
			document = strings.TrimRight(document, "\n") + "\n\n"
		}
		return document + text, nil
	}
	_, after, ended := strings.Cut(rest, end)
	if !ended {
		return "", fmt.Errorf("part %s has no end", name)
	}
	return before + text + after, nil
}
