package main

import "github.com/spf13/cobra"

func (a *app) validateCmd() *cobra.Command {
	var input inputFlags
	cmd := &cobra.Command{
		Use:        "validate FILE…",
		SuggestFor: []string{"lint", "verify"},
		Short:      "Say what is wrong with definitions; silent when they are fine",
		Long: `Reads all documents of all files and says of each fault where it is (FILE:LINE:COL) and how to mend
it, on stderr, exit 2. When all is fine it says nothing and exits 0. - is stdin. It needs no server
and no store.`,
		Example: `  perdure validate order.yaml
  generate | perdure validate -`,
		Args: argsOf(1, -1, "one or more files"),
		RunE: func(cmd *cobra.Command, files []string) error {
			_, err := a.load(files, input)
			return err
		},
		ValidArgsFunction: completeFiles,
	}
	uses(cmd)
	input.register(cmd)
	return cmd
}

func (a *app) schemaCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of definitions",
		Long:    `Prints the JSON Schema that editors complete and check definitions by.`,
		Example: "  perdure schema > job.schema.json\n  # and as a file's first line: # yaml-language-server: $schema=./job.schema.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.printf("%s\n", jobSchema())
			return nil
		},
	}
	uses(cmd)
	return cmd
}
