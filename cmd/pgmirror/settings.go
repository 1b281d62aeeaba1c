package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"pgmirror/mirror"
	"pgmirror/pgcdc"
)

// settings is what a user may set. Zero values stand only until the defaults of the table below are applied.
type settings struct {
	unknown            []string // PGMIRROR_ variables that are no settings, each with what may be meant
	secretFile         string   // the config file, when it has a password or the token
	Source             string
	Publications       []string
	Slot               string
	Data               string
	Listen             string
	Token              string
	CheckpointInterval time.Duration
	BatchRows          int
	FlushWorkers       int
	CopyWorkers        int
	Memory             int64 // bytes
	MinFreeDisk        diskRule
	MaxSlotWAL         int64 // bytes; 0 is no limit
	OnMaxSlotWAL       string
	History            time.Duration
	ReadStateLimit     time.Duration
	ReadStateBytes     int64
	CatalogPoll        time.Duration
	Compact            mirror.Compaction
	Snapshots          retention
	OnUnrepresentable  string
	Types              map[pgcdc.ColumnName]pgcdc.Form
	PartialPublish     bool
	LogLevel           slog.Level
	LogFormat          string
}

// A setting is one line of the config file, one PGMIRROR_ variable and, unless it is secret, one flag.
type setting struct {
	key   string // as in the file; the flag has - for _, the variable is PGMIRROR_ and upper case
	meta  string // what stands for the value in the help
	def   string // "" leaves the zero value
	usage string
	list  bool // the flag may be repeated, the file may have a list
	// mapping: the file has lines of the form key: value instead of a list, which the flag has as key=value.
	mapping bool
	flag    bool // the flag needs no value: it stands for true
	secret  bool // no flag, so that it is not seen in ps; its value is in no message
	// set checks and stores one value.
	set func(s *settings, value string) error
}

// words are what a mapping's place may have instead of one.
func (k *setting) words() []string {
	switch k.key {
	case "snapshots":
		return []string{"off"}
	case "compact":
		return []string{"auto", "off"}
	}
	return nil
}

func (k *setting) flagName() string { return strings.ReplaceAll(k.key, "_", "-") }
func (k *setting) envName() string  { return "PGMIRROR_" + strings.ToUpper(k.key) }

var settingTable = []setting{
	{key: "source", meta: "URL", usage: "PostgreSQL to mirror: URL or libpq keywords; PG* variables and .pgpass fill in the rest. A password given here is seen in ps: use .pgpass, PGPASSWORD or PGMIRROR_SOURCE",
		set: func(s *settings, v string) error { s.Source = v; return nil }},
	{key: "publication", meta: "NAME", list: true, usage: "publication to mirror; several are separated by commas",
		set: func(s *settings, v string) (err error) { s.Publications, err = parseNames(v); return err }},
	{key: "slot", meta: "NAME", usage: "replication slot (default pgmirror_<database>)",
		set: func(s *settings, v string) error { s.Slot = v; return checkSlotName(v) }},
	{key: "data", meta: "DIR", def: "./pgmirror-data", usage: "data directory",
		set: func(s *settings, v string) (err error) { s.Data, err = absolute(v); return err }},
	{key: "listen", meta: "HOST:PORT", def: "127.0.0.1:8181", usage: "address of the HTTP port; other than loopback needs a token; \"off\" opens none",
		set: func(s *settings, v string) error { s.Listen = v; return checkListen(v) }},
	{key: "token", meta: "TOKEN", secret: true, usage: "bearer token that HTTP clients must send",
		set: func(s *settings, v string) error { s.Token = v; return checkToken(v) }},
	{key: "checkpoint_interval", meta: "DURATION", def: "30s", usage: "time between checkpoints while there is something to commit",
		set: durationSetting(func(s *settings) *time.Duration { return &s.CheckpointInterval }, 100*time.Millisecond, 24*time.Hour)},
	{key: "batch_rows", meta: "N", def: "8192", usage: "rows of a memory batch",
		set: intSetting(func(s *settings) *int { return &s.BatchRows }, 1, 1<<20)},
	{key: "flush_workers", meta: "N", def: "2", usage: "tables written to files at once",
		set: intSetting(func(s *settings) *int { return &s.FlushWorkers }, 1, 256)},
	{key: "copy_workers", meta: "N", def: strconv.Itoa(max(2, min(8, runtime.NumCPU()))), usage: "connections of the initial copy",
		set: intSetting(func(s *settings) *int { return &s.CopyWorkers }, 1, 64)},
	{key: "memory", meta: "SIZE", def: "25%", usage: "bound of the rows and indexes held in memory: bytes, KB to GB, KiB to GiB, or % of the machine's memory",
		set: func(s *settings, v string) (err error) { s.Memory, err = parseMemory(v, machineMemory); return err }},
	{key: "min_free_disk", meta: "SIZE", def: "auto", usage: "nothing more is taken in while less is free for the data directory: bytes, KB to GB, KiB to GiB, % of the disk, 0, or auto: 1GiB, on disks below 20 GiB 5%",
		set: func(s *settings, v string) (err error) { s.MinFreeDisk, err = parseDiskRule(v); return err }},
	{key: "max_slot_wal", meta: "SIZE", def: "16GiB", usage: "WAL that the slot may keep on the source before on_max_slot_wal; 0 is no limit",
		set: func(s *settings, v string) (err error) { s.MaxSlotWAL, err = parseSize(v); return err }},
	{key: "on_max_slot_wal", meta: "RULE", def: "warn", usage: "a slot that keeps more than max_slot_wal is told of (warn) or, when that does not get less, dropped (drop-slot): the source is saved, and the mirror must be copied anew",
		set: choiceSetting(func(s *settings) *string { return &s.OnMaxSlotWAL }, "warn", "drop-slot")},
	{key: "history", meta: "DURATION", def: "0s", usage: "how far back --at may reach",
		set: durationSetting(func(s *settings) *time.Duration { return &s.History }, 0, 30*24*time.Hour)},
	{key: "read_state_limit", meta: "DURATION", def: "5m", usage: "age from which on a read state holds nothing but files",
		set: durationSetting(func(s *settings) *time.Duration { return &s.ReadStateLimit }, time.Second, 30*24*time.Hour)},
	{key: "read_state_bytes", meta: "SIZE", def: "16GiB", usage: "disk that all older read states may hold before some end with an error: bytes, KB to GB, KiB to GiB",
		set: func(s *settings, v string) (err error) { s.ReadStateBytes, err = parseLargeSize(v); return err }},
	{key: "catalog_poll", meta: "DURATION", def: "2s", usage: "time between looks at the source's catalogue",
		set: durationSetting(func(s *settings) *time.Duration { return &s.CatalogPoll }, 10*time.Millisecond, time.Hour)},
	{key: "compact", meta: "RULE", def: "auto", list: true, mapping: true, usage: "small files and files of deleted rows are made into few: auto, which is dead_ratio=0.5,files=64; with min_interval of a table, window of the day in UTC and bytes_per_second too; or off",
		set: func(s *settings, v string) (err error) { s.Compact, err = parseCompaction(v); return err }},
	{key: "snapshots", meta: "RULE", def: "keep=100,age=24h,grace=10m", list: true, mapping: true, usage: "checkpoints that stay readable as Iceberg snapshots: the newest keep, none older than age (off keeps all); files that none names stay for grace more",
		set: func(s *settings, v string) (err error) { s.Snapshots, err = parseRetention(v); return err }},
	{key: "on_unrepresentable", meta: "RULE", def: "fail", usage: "a value that cannot be represented stops its table (fail) or is stored as NULL and counted (null)",
		set: choiceSetting(func(s *settings) *string { return &s.OnUnrepresentable }, "fail", "null")},
	{key: "types", meta: "COLUMN=FORM", list: true, mapping: true, usage: "mirror schema.table.column as text, decimal(p,s) or double instead of by its type; several are separated by commas",
		set: func(s *settings, v string) (err error) { s.Types, err = parseTypes(v); return err }},
	{key: "partial_publish", meta: "BOOL", def: "false", flag: true, usage: "accept publications that leave out inserts, updates, deletes or truncates",
		set: func(s *settings, v string) (err error) { s.PartialPublish, err = parseBool(v); return err }},
	{key: "log_level", meta: "LEVEL", def: "info", usage: "debug, info, warn or error",
		set: func(s *settings, v string) error { return parseLevel(&s.LogLevel, v) }},
	{key: "log_format", meta: "FORMAT", def: "text", usage: "text or json",
		set: choiceSetting(func(s *settings) *string { return &s.LogFormat }, "text", "json")},
}

// settingOf finds a setting by its key.
func settingOf(key string) (*setting, bool) {
	for i := range settingTable {
		if settingTable[i].key == key {
			return &settingTable[i], true
		}
	}
	return nil, false
}

// checkTogether reports what is wrong between settings that are right by themselves.
func (s *settings) checkTogether() []error {
	var faults []error
	if s.Listen != "off" && s.Token == "" && !loopback(s.Listen) {
		faults = append(faults, fmt.Errorf("listen: %s is not a loopback address: set token (config file or PGMIRROR_TOKEN) to open it", s.Listen))
	}
	if s.OnMaxSlotWAL == "drop-slot" && s.MaxSlotWAL == 0 {
		faults = append(faults, errors.New("on_max_slot_wal: drop-slot needs a max_slot_wal"))
	}
	return faults
}

// absolute makes a path independent of the working directory.
func absolute(v string) (string, error) {
	if v == "" {
		return "", errors.New("must not be empty")
	}
	return filepath.Abs(v)
}

func durationSetting(field func(*settings) *time.Duration, least, most time.Duration) func(*settings, string) error {
	return func(s *settings, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 5m", v)
		}
		if d < least || d > most {
			return fmt.Errorf("%s is not between %s and %s", d, least, most)
		}
		*field(s) = d
		return nil
	}
}

func intSetting(field func(*settings) *int, least, most int) func(*settings, string) error {
	return func(s *settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		if n < least || n > most {
			return fmt.Errorf("%d is not between %d and %d", n, least, most)
		}
		*field(s) = n
		return nil
	}
}

func choiceSetting(field func(*settings) *string, choices ...string) func(*settings, string) error {
	return func(s *settings, v string) error {
		for _, c := range choices {
			if v == c {
				*field(s) = v
				return nil
			}
		}
		return fmt.Errorf("%q is not one of %s", v, strings.Join(choices, ", "))
	}
}

func parseBool(v string) (bool, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%q is not true or false", v)
	}
	return b, nil
}

func parseLevel(level *slog.Level, v string) error {
	switch v {
	case "debug", "info", "warn", "error":
		return level.UnmarshalText([]byte(v))
	}
	return fmt.Errorf("%q is not one of debug, info, warn, error", v)
}

func checkListen(v string) error {
	if v == "off" {
		return nil
	}
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT or off", v)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return fmt.Errorf("%q has no port between 0 and 65535", v)
	}
	return nil
}

// loopback says whether only this machine can reach the address. A host name other than localhost may resolve to anything.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// checkToken keeps a token to what an Authorization header can carry, RFC 6750 section 2.1, and long enough not to be guessed.
func checkToken(v string) error {
	if len(v) < 16 {
		return errors.New("must have at least 16 characters")
	}
	if strings.Trim(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") != "" {
		return errors.New("may hold only letters, digits and - . _ ~ + / =")
	}
	return nil
}
