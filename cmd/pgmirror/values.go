package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxName is the longest identifier of PostgreSQL, in bytes (NAMEDATALEN - 1).
const maxName = 63

// parseNames splits a comma-separated list of identifiers. A name with a comma, a space at its ends or a double quote is
// written in double quotes, as in SQL; unlike in SQL, case is kept without them.
func parseNames(list string) ([]string, error) {
	parts, err := splitQuoted(list, ',')
	if err != nil {
		return nil, err
	}
	var names []string
	for _, part := range parts {
		name, err := unquoteName(part)
		if err != nil {
			return nil, err
		}
		for _, earlier := range names {
			if earlier == name {
				return nil, fmt.Errorf("%q is named twice", name)
			}
		}
		names = append(names, name)
	}
	return names, nil
}

// splitQuoted splits at every sep outside double quotes.
func splitQuoted(list string, sep byte) ([]string, error) {
	var parts []string
	quoted, start := false, 0
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == '"':
			quoted = !quoted
		case list[i] == sep && !quoted:
			parts = append(parts, list[start:i])
			start = i + 1
		}
	}
	if quoted {
		return nil, fmt.Errorf("%q has an open double quote", list)
	}
	return append(parts, list[start:]), nil
}

func unquoteName(part string) (string, error) {
	part = strings.TrimSpace(part)
	name := part
	if len(part) >= 2 && part[0] == '"' && part[len(part)-1] == '"' {
		inner := part[1 : len(part)-1]
		name = strings.ReplaceAll(inner, `""`, `"`)
		if strings.Contains(strings.ReplaceAll(inner, `""`, ""), `"`) {
			return "", fmt.Errorf("%s is not a name", part)
		}
	} else if strings.Contains(part, `"`) {
		return "", fmt.Errorf("%s is not a name", part)
	}
	switch {
	case name == "":
		return "", errors.New("a name is empty")
	case len(name) > maxName:
		return "", fmt.Errorf("%q is longer than %d bytes", name, maxName)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return "", fmt.Errorf("%q is not a name", name)
	}
	return name, nil
}

// checkSlotName holds the server's rule (ReplicationSlotValidateName): lower case letters, digits and underscores, 1 to 63.
func checkSlotName(name string) error {
	if name == "" || len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("%q is not a slot name: 1 to %d lower case letters, digits and underscores", name, maxName)
	}
	return nil
}

// slotFor is the slot's default name: pgmirror_<database>, the database mapped as paths are (a-z, 0-9 and _ kept, upper case
// lowered, any other character _) and cut to what a slot's name may hold.
func slotFor(database string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, database)
	name := "pgmirror_" + mapped
	return name[:min(len(name), maxName)]
}

// byteUnits in the order in which their suffixes must be tried.
var byteUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// memoryFloor is the engine's own least (mirror.Config.Memory).
const memoryFloor = 1 << 20

// parseMemory reads a bound in bytes, with a unit, or as a share of what the machine has.
func parseMemory(v string, machine func() (int64, error)) (int64, error) {
	if share, ok := strings.CutSuffix(v, "%"); ok {
		total, err := machine()
		if err != nil {
			return 0, err
		}
		percent, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(percent > 0 && percent <= 90) {
			return 0, fmt.Errorf("%q is not a share between 0%% and 90%%", v)
		}
		return int64(float64(total) * percent / 100), nil
	}
	return parseLargeSize(v)
}

// parseLargeSize is parseSize of at least memoryFloor.
func parseLargeSize(v string) (int64, error) {
	n, err := parseSize(v)
	if err != nil {
		return 0, err
	}
	if n < memoryFloor {
		return 0, fmt.Errorf("%q is not at least %d MiB", v, memoryFloor>>20)
	}
	return n, nil
}

// parseSize reads a number of bytes from 0 to 2^62, with or without a unit.
func parseSize(v string) (int64, error) {
	number, unit := v, int64(1)
	for _, u := range byteUnits {
		if cut, ok := strings.CutSuffix(v, u.suffix); ok {
			number, unit = strings.TrimSpace(cut), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is not a size such as 2GB or 512MiB", v)
	}
	return n * unit, nil
}

// machineMemory is the machine's memory or this process's cgroup limit, whichever is less.
func machineMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("find out the machine's memory: %w; set memory in bytes", err)
	}
	total, ok := memTotal(string(text))
	if !ok {
		return 0, errors.New("find out the machine's memory: no MemTotal in /proc/meminfo; set memory in bytes")
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if text, err := os.ReadFile(file); err == nil {
			if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
				total = min(total, limit)
			}
		}
	}
	return total, nil
}

// memTotal reads /proc/meminfo's first line, "MemTotal:  24689764 kB", in bytes.
func memTotal(meminfo string) (int64, bool) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err == nil && n > 0 && n < 1<<50
		}
	}
	return 0, false
}
