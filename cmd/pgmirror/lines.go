package main

import (
	"bufio"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// lineReader reads lines of any length.
type lineReader struct{ in *bufio.Reader }

func newLineReader(in io.Reader) *lineReader { return &lineReader{bufio.NewReader(in)} }

// next returns a line without its end. The last one needs no newline; after it comes io.EOF.
func (l *lineReader) next() (string, error) {
	line, err := l.in.ReadString('\n')
	if err == io.EOF && line != "" {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

// complete says whether DuckDB would find the last statement of sql ended: a semicolon, then nothing but space and
// comments, none of it inside a string, a quoted name, a dollar-quoted string or a comment.
func complete(sql string) bool {
	ended := false
	for i := 0; i < len(sql); {
		switch rest := sql[i:]; {
		case rest[0] == ';':
			ended = true
			i++
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\n' || rest[0] == '\r':
			i++
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				return ended
			}
			i += end + 1
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return false
			}
			i += end + 4
		default:
			ended = false
			length := quotedLength(rest)
			if length == 0 {
				return false
			}
			i += length
		}
	}
	return ended
}

// quotedLength is the length of what sql starts with: a whole quoted thing, or one byte of anything else. 0 means that a
// quote is open. A doubled quote ends one quoted thing and starts the next, which comes to the same.
func quotedLength(sql string) int {
	closing := ""
	switch sql[0] {
	case '\'', '"':
		closing = sql[:1]
	case '$':
		end := strings.IndexByte(sql[1:], '$')
		if end < 0 || strings.Trim(sql[1:1+end], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			return 1
		}
		closing = sql[:end+2]
	default:
		return 1
	}
	end := strings.Index(sql[len(closing):], closing)
	if end < 0 {
		return 0
	}
	return len(closing) + end + len(closing)
}
