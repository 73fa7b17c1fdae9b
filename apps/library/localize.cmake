# cmake -D INPUT=... -D OUTPUT=... -D NM=... -D OBJCOPY=... -P localize.cmake
# Makes every name of a merged object local but those of the interface. objcopy leaves names that are
# unique in a process (template statics) as they are, so these are made weak first.
execute_process(COMMAND ${NM} --defined-only --format=posix ${INPUT}
                OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n ]+ u [^\n]*" symbols "${symbols}")
list(TRANSFORM symbols REPLACE " .*" "")
list(JOIN symbols "\n" symbols)
file(WRITE ${OUTPUT}.unique "${symbols}\n")
execute_process(COMMAND ${OBJCOPY} --weaken-symbols=${OUTPUT}.unique ${INPUT} ${OUTPUT}.weak
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${OBJCOPY} --wildcard --localize-hidden
                        --keep-global-symbol=_ZN10tessera_v0* --keep-global-symbol=_ZNK10tessera_v0*
                        --keep-global-symbol=_ZT[ISV]N10tessera_v0* ${OUTPUT}.weak ${OUTPUT}
                COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${INPUT} ${OUTPUT}.unique ${OUTPUT}.weak)
