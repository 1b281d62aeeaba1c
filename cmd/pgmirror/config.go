package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// defaultConfig is read if it is there; a file named by --config or PGMIRROR_CONFIG must be.
const defaultConfig = "mirror.yaml"

// flagValues holds what the command line sets, by the setting's key. An entry exists only if its flag was given.
type flagValues map[string]string

// bindSettings gives a command the flags of some settings; with no key, of all that may have one.
func bindSettings(cmd *cobra.Command, values flagValues, keys ...string) {
	if len(keys) == 0 {
		for i := range settingTable {
			keys = append(keys, settingTable[i].key)
		}
	}
	for _, key := range keys {
		k, ok := settingOf(key)
		if !ok || k.secret || cmd.Flags().Lookup(k.flagName()) != nil {
			continue
		}
		usage := k.usage
		if k.def != "" {
			usage += " (default " + k.def + ")"
		}
		flag := cmd.Flags().VarPF(&flagValue{setting: k, values: values}, k.flagName(), "", usage)
		if k.flag {
			flag.NoOptDefVal = "true"
		}
	}
}

// flagValue stores a flag's text; it is checked with the file's and the environment's, so that faults are reported together.
type flagValue struct {
	setting *setting
	values  flagValues
}

func (f *flagValue) String() string { return "" }

func (f *flagValue) Type() string {
	if f.setting.flag {
		return "bool"
	}
	return f.setting.meta
}

func (f *flagValue) Set(value string) error {
	if earlier, ok := f.values[f.setting.key]; ok && f.setting.list {
		value = earlier + "," + value
	}
	f.values[f.setting.key] = value
	return nil
}

// loadSettings merges the defaults, the config file, the environment and the flags, each stronger than the one before, and
// reports all faults of all of them together. configFile is --config, "" when it was not given.
func loadSettings(configFile string, environ []string, flags flagValues) (*settings, error) {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, "PGMIRROR_") {
			env[name] = value
		}
	}
	if configFile == "" {
		configFile = env["PGMIRROR_CONFIG"]
	}
	file, faults := readConfigFile(configFile)

	s := &settings{}
	for i := range settingTable {
		k := &settingTable[i]
		from, value := "", k.def
		if v, ok := file[k.key]; ok {
			from, value = fmt.Sprintf("%s line %d: %s", v.path, v.line, k.key), v.text
		}
		if v, ok := env[k.envName()]; ok {
			from, value = k.envName(), v
		}
		if v, ok := flags[k.key]; ok {
			from, value = "--"+k.flagName(), v
		}
		if from == "" && k.def == "" {
			continue
		}
		if from == "" {
			from = k.key + " (default)"
		}
		if err := k.set(s, value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", from, err))
		}
	}
	for name := range env {
		key, _ := strings.CutPrefix(strings.ToLower(name), "pgmirror_")
		if _, known := settingOf(key); !known && name != "PGMIRROR_CONFIG" {
			s.unknown = append(s.unknown, name+suggestion(key))
		}
	}
	slices.Sort(s.unknown)
	if v, ok := file["source"]; ok && env["PGMIRROR_SOURCE"] == "" && flags["source"] == "" && passwordIn(v.text) {
		s.secretFile = v.path
	} else {
		s.secretFile = file["token"].path
	}
	if len(faults) == 0 {
		faults = s.checkTogether()
	}
	if len(faults) > 0 {
		return nil, usage(listFaults(faults))
	}
	return s, nil
}

// listFaults makes one error of several, a line each.
func listFaults(faults []error) error {
	if len(faults) == 1 {
		return faults[0]
	}
	lines := make([]string, 0, len(faults)+1)
	lines = append(lines, fmt.Sprintf("%d settings are wrong:", len(faults)))
	for _, fault := range faults {
		lines = append(lines, "  "+fault.Error())
	}
	return errors.New(strings.Join(lines, "\n"))
}

// fileValue is a scalar of the config file, a list joined by commas.
type fileValue struct {
	text string
	path string
	line int
}

// readConfigFile reads path, or mirror.yaml if it exists when path is "".
func readConfigFile(path string) (map[string]fileValue, []error) {
	named := path != ""
	if !named {
		path = defaultConfig
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, []error{fmt.Errorf("read config file: %w", err)}
	}
	return parseConfig(path, text)
}

// parseConfig reads one flat YAML mapping of settings.
func parseConfig(path string, text []byte) (map[string]fileValue, []error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF): // nothing but comments
		return nil, nil
	case err != nil:
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, []error{fmt.Errorf("%s: expected one YAML document", path)}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s line %d: expected lines of the form key: value", path, root.Line)}
	}
	values := map[string]fileValue{}
	var faults []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("%s line %d: "+format, append([]any{path, key.Line}, args...)...))
		}
		k, ok := settingOf(key.Value)
		if !ok {
			fault("unknown key %q%s", key.Value, suggestion(key.Value))
			continue
		}
		if _, twice := values[k.key]; twice {
			fault("%s is set twice", k.key)
			continue
		}
		value, err := scalarText(k, node)
		if err != nil {
			fault("%s: %w", k.key, err)
			continue
		}
		values[k.key] = fileValue{text: value, path: path, line: key.Line}
	}
	return values, faults
}

func scalarText(k *setting, node *yaml.Node) (string, error) {
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return node.Value, nil
	case node.Kind == yaml.ScalarNode && k.key == "on_unrepresentable" && node.Value == "null":
		return "null", nil // YAML's own word, which here is one of the choices
	case node.Kind == yaml.ScalarNode && k.mapping && slices.Contains(k.words(), node.Value):
		return node.Value, nil
	case node.Kind == yaml.MappingNode && k.mapping:
		var items []string
		for i := 0; i+1 < len(node.Content); i += 2 {
			if name, value := node.Content[i], node.Content[i+1]; name.Kind == yaml.ScalarNode && value.Kind == yaml.ScalarNode && value.Tag != "!!null" {
				items = append(items, name.Value+"="+value.Value)
				continue
			}
			return "", fmt.Errorf("line %d: expected a name and one value", node.Content[i].Line)
		}
		return strings.Join(items, ","), nil
	case k.mapping:
		return "", errors.New("expected lines of the form name: value, indented")
	case node.Kind == yaml.SequenceNode && k.list:
		var items []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return "", errors.New("expected a list of names")
			}
			items = append(items, `"`+strings.ReplaceAll(item.Value, `"`, `""`)+`"`)
		}
		return strings.Join(items, ","), nil
	case k.list:
		return "", errors.New("expected a name or a list of names")
	}
	return "", errors.New("expected one value")
}

// suggestion names the nearest known key, for a slip of the pen.
func suggestion(unknown string) string {
	normal := strings.ReplaceAll(strings.ToLower(unknown), "-", "_")
	for i := range settingTable {
		k := settingTable[i].key
		if k == normal || k == normal+"s" || k+"s" == normal {
			return ", did you mean " + k + "?"
		}
	}
	return ""
}
